// The rails in one pass: 22 bytes an element.
#include "kernels/cpu/twin_rail.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/twin_rail.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// a + w (b - a)
HWY_INLINE VF Lerp(VF a, VF b, VF w) { return hn::MulAdd(w, hn::Sub(b, a), a); }

template <bool rounded>
void RailsTyped(const TwinRailArgs& args, int64_t begin, int64_t size) {
  const DF d;
  const float* HWY_RESTRICT g = args.g.f32() + begin;
  float* HWY_RESTRICT fast = args.fast.f32() + begin;
  float* HWY_RESTRICT slow = args.slow.f32() + begin;
  BF16* HWY_RESTRICT u = args.u.bf16() + begin;
  const float* const rates = args.rates.f32();
  const VF lookahead = hn::Set(d, rates[0]);
  const VF fast_rate = hn::Set(d, 1.0f - rates[1]);
  const VF weight = hn::Set(d, rates[2]);
  const VF slow_rate = hn::Set(d, args.slow_rate);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    VF grad = LoadAny(d, g + i, n);
    if constexpr (rounded) grad = RoundVecToBF16(d, grad);
    const VF new_fast = Lerp(LoadAny(d, fast + i, n), grad, fast_rate);
    const VF new_slow = Lerp(LoadAny(d, slow + i, n), grad, slow_rate);
    StoreAny(d, new_fast, fast + i, n);
    StoreAny(d, new_slow, slow + i, n);
    StoreAny(d, Lerp(grad, Lerp(new_slow, new_fast, weight), lookahead), u + i, n);
  });
}

void RailsRange(const TwinRailArgs& args, int64_t begin, int64_t size) {
  args.gradient == DType::kBF16 ? RailsTyped<true>(args, begin, size)
                                : RailsTyped<false>(args, begin, size);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(RailsRange);

// Elements of one task, as of the other optimizer ops.
constexpr int64_t kBlock = 16384;

}  // namespace

void cpu::TwinRailUpdate(const TwinRailArgs& args, ThreadPool& pool) {
  const int64_t size = args.g.size();
  pool.ParallelFor((size + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock;
    KERNELS_DISPATCH(RailsRange)(args, begin, std::min(kBlock, size - begin));
  });
}

}  // namespace kernels
#endif  // HWY_ONCE
