// A task a matrix for the norm, which only reads the Gram matrix, then a task a block of elements.
#include "kernels/cpu/gram_norm.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gram_norm.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of (a / divisor)^2: of a itself f32 might not hold the squares.
float SumScaledSquares(const BF16* HWY_RESTRICT a, float divisor, int64_t size) {
  const DF d;
  const VF by = hn::Set(d, divisor);
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF v = hn::Div(LoadAny(d, a + i, n), by);
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// `times` divisions one after the other: divisor^2 might not fit. No HWY_RESTRICT: y may be x.
void DivideRepeatedly(const BF16* x, float divisor, int times, int64_t size, BF16* y) {
  const DF d;
  const VF by = hn::Set(d, divisor);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    VF v = LoadAny(d, x + i, n);
    for (int k = 0; k < times; ++k) v = hn::Div(v, by);
    StoreAny(d, v, y + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(SumScaledSquares);
KERNELS_EXPORT(DivideRepeatedly);

// Elements of one task, as of the other optimizer ops.
constexpr int64_t kBlock = 16384;

float Divisor(const GramNormArgs& args, int64_t matrix) {
  const int64_t side = args.gram.dim(1);
  const BF16* const gram = args.gram.bf16() + matrix * side * side;
  float trace = 0;
  for (int64_t i = 0; i < side; ++i) trace += ToFloat(gram[i * (side + 1)]);
  const float share = KERNELS_DISPATCH(SumScaledSquares)(gram, trace, side * side);
  // A zero matrix has NaN here, which is not above.
  const float scale = share > kLoneShare ? args.lone_scale : args.scale;
  return scale * std::sqrt(trace) + args.eps;
}

void Divide(const Tensor& x, const std::vector<float>& divisors, int times, const Tensor& y,
            ThreadPool& pool) {
  const int64_t size = x.dim(1) * x.dim(2);
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  pool.ParallelFor(x.dim(0) * blocks, [&](int64_t task) {
    const int64_t matrix = task / blocks, begin = task % blocks * kBlock;
    const int64_t offset = matrix * size + begin;
    KERNELS_DISPATCH(DivideRepeatedly)
    (x.bf16() + offset, divisors[matrix], times, std::min(kBlock, size - begin), y.bf16() + offset);
  });
}

}  // namespace

void cpu::NormalizeByGram(const GramNormArgs& args, ThreadPool& pool) {
  std::vector<float> divisors(args.u.dim(0));
  pool.ParallelFor(args.u.dim(0),
                   [&](int64_t matrix) { divisors[matrix] = Divisor(args, matrix); });
  Divide(args.u, divisors, 1, args.x, pool);
  Divide(args.gram, divisors, 2, args.gram, pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
