// Row helpers of attention.cc and attention_grad.cc, compiled once per instruction set.
#if defined(KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_INL_H_
#undef KERNELS_CPU_ATTENTION_INL_H_
#else
#define KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x; a NaN stays one (Highway's Exp makes it 0, which would hide it from the loss).
HWY_INLINE VF ExpKeepNan(DF d, VF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

// Copies `rows` rows of `cols` values, `stride` apart, into dense f32 rows.
HWY_INLINE void LoadRows(const BF16* HWY_RESTRICT from, int64_t stride, int64_t rows, int64_t cols,
                         float* HWY_RESTRICT to) {
  const DF d;
  for (int64_t row = 0; row < rows; ++row) {
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      StoreAny(d, LoadAny(d, from + row * stride + i, n), to + row * cols + i, n);
    });
  }
}

// The way back, each row times factors[row], or 1 without factors.
HWY_INLINE void StoreRows(const float* HWY_RESTRICT from, const float* factors, int64_t rows,
                          int64_t cols, BF16* HWY_RESTRICT to, int64_t stride) {
  const DF d;
  for (int64_t row = 0; row < rows; ++row) {
    const VF factor = hn::Set(d, factors != nullptr ? factors[row] : 1.0f);
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      const VF x = LoadAny(d, from + row * cols + i, n);
      StoreAny(d, hn::Mul(x, factor), to + row * stride + i, n);
    });
  }
}

// Keys of a step that a query sees, as columns of the step.
struct Visible {
  // Of `query`, whose first key is `first`, among keys [begin, begin + count).
  Visible(int64_t query, int64_t first, int64_t begin, int64_t count)
      : from(std::max<int64_t>(first - begin, 0)), to(std::min(query + 1 - begin, count)) {}
  bool empty() const { return from >= to; }
  int64_t from, to;
};

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
