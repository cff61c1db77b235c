// An f32 weight lies in two arrays, its upper and its lower 16 bits. Each product and difference is
// rounded by itself, so that all instruction sets, and CUDA, give the same bits.
#include "kernels/cpu/split_matrix.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/split_matrix.cc"
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

enum class Decay : uint8_t { kPlain, kCautious, kGated };

template <Decay decides>
void SplitRangeTyped(const SplitMatrixArgs& args, int64_t matrix, int64_t begin, int64_t size) {
  const DF d;
  // Halves of a number: BF16 is made of its upper 16 bits.
  uint16_t* HWY_RESTRICT p = static_cast<uint16_t*>(args.p.data()) + begin;
  uint16_t* HWY_RESTRICT mantissa = args.mantissa.u16() + begin;
  const BF16* HWY_RESTRICT o = args.o.bf16() + begin;
  [[maybe_unused]] const float* HWY_RESTRICT gate =
      decides == Decay::kGated ? args.gate.f32() + begin : nullptr;
  const VF lr = hn::Set(d, args.lr.f32()[matrix]);
  const VF decay = hn::Set(d, args.decay.f32()[matrix]);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF x = JoinHalves(d, p + i, mantissa + i, n);
    const VF update = LoadAny(d, o + i, n);
    VF decayed;
    if constexpr (decides != Decay::kPlain) {
      VF sign = update;
      if constexpr (decides == Decay::kGated) sign = LoadAny(d, gate + i, n);
      const auto agrees = hn::Ge(hn::Mul(sign, x), hn::Zero(d));
      const VF mask = hn::IfThenElseZero(agrees, hn::Set(d, 1.0f));
      decayed = hn::Sub(x, hn::Mul(hn::Mul(hn::Mul(x, mask), decay), lr));
    } else {
      decayed = hn::Mul(x, decay);
    }
    SplitHalves(d, hn::Sub(decayed, hn::Mul(update, lr)), p + i, mantissa + i, n);
  });
}

void SplitRange(const SplitMatrixArgs& args, int64_t matrix, int64_t begin, int64_t size) {
  if (!args.cautious) {
    SplitRangeTyped<Decay::kPlain>(args, matrix, begin, size);
  } else if (args.lr.f32()[matrix] == 0) {
    return;
  } else if (args.gate.empty()) {
    SplitRangeTyped<Decay::kCautious>(args, matrix, begin, size);
  } else {
    SplitRangeTyped<Decay::kGated>(args, matrix, begin, size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(SplitRange);

// Elements of one task, as of the other optimizer ops.
constexpr int64_t kBlock = 16384;

}  // namespace

void cpu::SplitMatrixUpdate(const SplitMatrixArgs& args, ThreadPool& pool) {
  const int64_t size = args.p.dim(1) * args.p.dim(2);
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  pool.ParallelFor(args.p.dim(0) * blocks, [&](int64_t task) {
    const int64_t matrix = task / blocks;
    const int64_t begin = task % blocks * kBlock;
    KERNELS_DISPATCH(SplitRange)
    (args, matrix, matrix * size + begin, std::min(kBlock, size - begin));
  });
}

}  // namespace kernels
#endif  // HWY_ONCE
