// Dot products, and the sigmoid gates made of them, for op files that foreach_target.h compiles
// once per instruction set.
#if defined(KERNELS_CPU_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_GATES_INL_H_
#undef KERNELS_CPU_GATES_INL_H_
#else
#define KERNELS_CPU_GATES_INL_H_
#endif

#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename A, typename B>
HWY_INLINE float Dot(const A* HWY_RESTRICT a, const B* HWY_RESTRICT b, int64_t size) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    sum = hn::MulAdd(LoadAny(d, a + i, n), LoadAny(d, b + i, n), sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// gates[t * heads + head] = sigmoid(weights[head * k, + k) . u[t * u_dim, + k)) for t < rows.
HWY_INLINE void Gates(const BF16* HWY_RESTRICT weights, int64_t heads, int64_t k,
                      const BF16* HWY_RESTRICT u, int64_t u_dim, int64_t rows,
                      float* HWY_RESTRICT gates) {
  const DF d;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t head = 0; head < heads; ++head) {
      gates[i * heads + head] = Dot(weights + head * k, u + i * u_dim, k);
    }
  }
  const VF one = hn::Set(d, 1.0f);
  ForEachVec(d, rows * heads, [&](int64_t i, int64_t n) {
    const VF x = LoadAny(d, gates + i, n);
    // The exponent is never positive, so that nothing overflows. A NaN stays one.
    const VF e = hn::Exp(d, hn::Neg(hn::Abs(x)));
    const VF top = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
    const VF gate = hn::Div(top, hn::Add(one, e));
    StoreAny(d, hn::IfThenElse(hn::IsNaN(x), x, gate), gates + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
