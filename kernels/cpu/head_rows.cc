// Rows of the CPU's head: conversions, and a tile's logits to losses and gradients.
//
// Quantised values are held as f32: they and their products are exact there, so fp8 differs
// from bf16 by its roundings alone. Sums over the vocabulary go by vector lanes: in a fixed order
// on one machine, which another instruction set may order differently.
#include "kernels/cpu/head_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_rows.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <cmath>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/fp8-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void WidenImpl(const BF16* HWY_RESTRICT from, int64_t size, float* HWY_RESTRICT to) {
  const DF d;
  ForEachVec(d, size,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, from + i, n), to + i, n); });
}

void QuantiseImpl(const BF16* HWY_RESTRICT from, float inv_scale, int64_t size,
                  float* HWY_RESTRICT to) {
  const DF d;
  const VF scale = hn::Set(d, inv_scale);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, RoundVecToE4M3(d, hn::Mul(LoadAny(d, from + i, n), scale)), to + i, n);
  });
}

void NarrowImpl(const float* HWY_RESTRICT from, int64_t size, BF16* HWY_RESTRICT to) {
  const DF d;
  ForEachVec(d, size,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, from + i, n), to + i, n); });
}

// hn::Exp answers 0 for a NaN; a NaN has to reach the loss.
HWY_INLINE VF ExpOrNaN(DF d, VF v) { return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)); }

// z and slope of logits, rounded to bf16.
struct Capped {
  VF z;
  VF slope;  // dz / dlogit
};

// With r = 1 / sqrt(logit^2 + cap^2): z = cap logit r, slope = (cap r)^3. Logits count as at most
// 2^60, so that their squares are finite; the slope there is 0 in f32.
HWY_INLINE Capped CapIsru(DF d, VF logit, float cap_scalar) {
  const VF cap = hn::Set(d, cap_scalar);
  const VF most = hn::Set(d, 0x1p60f);
  const VF x = hn::IfThenElse(hn::Gt(hn::Abs(logit), most), hn::CopySign(most, logit), logit);
  const VF root = hn::Sqrt(hn::MulAdd(x, x, hn::Mul(cap, cap)));
  const VF ratio = hn::Div(cap, root);
  return {hn::Mul(x, ratio), hn::Mul(hn::Mul(ratio, ratio), ratio)};
}

// With y = (logit + shift) / temperature and e = exp(-|y|) nothing overflows, and
// c (1 - c) = e / (1 + e)^2 does not cancel; at infinity it is 0.
HWY_INLINE Capped CapSigmoid(DF d, VF logit, const HeadCurve& curve) {
  const VF one = hn::Set(d, 1.0f);
  const VF y =
      hn::Mul(hn::Add(logit, hn::Set(d, curve.shift)), hn::Set(d, 1.0f / curve.temperature));
  const VF e = ExpOrNaN(d, hn::Neg(hn::Abs(y)));
  const VF share = hn::Div(one, hn::Add(one, e));  // sigmoid(|y|)
  const VF rest = hn::Mul(e, share);               // sigmoid(-|y|)
  const VF c = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), rest, share);
  return {hn::Mul(hn::Set(d, curve.cap), c),
          hn::Mul(hn::Set(d, curve.cap / curve.temperature), hn::Mul(share, rest))};
}

HWY_INLINE Capped Cap(DF d, VF logit, const HeadCurve& curve) {
  const VF rounded = RoundVecToBF16(d, logit);
  if (curve.kind == SoftCap::kIsru) return CapIsru(d, rounded, curve.cap);
  return CapSigmoid(d, rounded, curve);
}

void CapRowImpl(int64_t vocab, const HeadCurve& curve, float* HWY_RESTRICT row) {
  const DF d;
  ForEachVec(d, vocab, [&](int64_t i, int64_t n) {
    StoreAny(d, Cap(d, LoadAny(d, row + i, n), curve).z, row + i, n);
  });
}

// z into `z`, slopes over the logits in `row`; returns the maximum of z.
float CapRowWithSlopes(const HeadRow& p, float* HWY_RESTRICT row, float* HWY_RESTRICT z) {
  const DF d;
  // Below any z.
  VF top = hn::Set(d, p.curve.kind == SoftCap::kIsru ? -p.curve.cap : 0.0f);
  ForEachVec(d, p.vocab, [&](int64_t i, int64_t n) {
    const Capped capped = Cap(d, LoadAny(d, row + i, n), p.curve);
    StoreAny(d, capped.z, z + i, n);
    StoreAny(d, capped.slope, row + i, n);
    // The lanes past a row's end hold z(0), which must not count as a maximum.
    const VF counted = n == static_cast<int64_t>(hn::Lanes(d))
                           ? capped.z
                           : hn::IfThenElse(hn::FirstN(d, n), capped.z, top);
    top = hn::Max(top, counted);
  });
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// z becomes exp(z - top); returns the sum.
float ExpRow(int64_t vocab, float top, float* HWY_RESTRICT z) {
  const DF d;
  const VF shift = hn::Set(d, top);
  VF sum = hn::Zero(d);
  ForEachVec(d, vocab, [&](int64_t i, int64_t n) {
    StoreAny(d, ExpOrNaN(d, hn::Sub(LoadAny(d, z + i, n), shift)), z + i, n);
    sum = hn::Add(sum, LoadAny(d, z + i, n));  // read back: zeros past the row's end
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The weights of the terms that have the target of term k.
float WeightOfTarget(const HeadTerms& terms, int k) {
  float weight = 0;
  for (int j = 0; j < terms.count; ++j) {
    if (terms.target[j] == terms.target[k]) weight += terms.weight[j];
  }
  return weight;
}

// The loss of one row of logits, which become the gradient g if p.grad. `z` is scratch [vocab].
float LossRowImpl(const HeadRow& p, const HeadTerms& terms, float* HWY_RESTRICT row,
                  float* HWY_RESTRICT z) {
  const DF d;
  const float top = CapRowWithSlopes(p, row, z);
  float target_z[kMaxLossWeights];
  for (int k = 0; k < terms.count; ++k) target_z[k] = z[terms.target[k]];
  const float sum = ExpRow(p.vocab, top, z);
  const float log_sum = top + std::log(sum);
  float loss = 0, weights = 0;
  for (int k = 0; k < terms.count; ++k) {
    loss += terms.weight[k] * (log_sum - target_z[k]);
    weights += terms.weight[k];
  }
  if (!p.grad) return loss;

  const float share_of_exp = weights * (1.0f / sum);
  float target_grad[kMaxLossWeights];
  for (int k = 0; k < terms.count; ++k) {
    const int32_t target = terms.target[k];
    target_grad[k] = (z[target] * share_of_exp - WeightOfTarget(terms, k)) * row[target];
  }
  const VF scale = hn::Set(d, share_of_exp);
  const VF inv_grad_scale = hn::Set(d, p.inv_grad_scale);
  ForEachVec(d, p.vocab, [&](int64_t i, int64_t n) {
    const VF share = hn::Mul(LoadAny(d, z + i, n), scale);
    VF g = RoundVecToBF16(d, hn::Mul(share, LoadAny(d, row + i, n)));
    if (p.fp8) g = RoundVecToE5M2(d, hn::Mul(g, inv_grad_scale));
    StoreAny(d, g, row + i, n);
  });
  for (int k = 0; k < terms.count; ++k) {  // the same number where targets repeat
    const float rounded = RoundToBF16(target_grad[k]);
    row[terms.target[k]] = p.fp8 ? RoundToE5M2(rounded * p.inv_grad_scale) : rounded;
  }
  return loss;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {

KERNELS_EXPORT(WidenImpl);
KERNELS_EXPORT(QuantiseImpl);
KERNELS_EXPORT(NarrowImpl);
KERNELS_EXPORT(CapRowImpl);
KERNELS_EXPORT(LossRowImpl);

void WidenHead(const BF16* from, int64_t size, float* to) {
  KERNELS_DISPATCH(WidenImpl)(from, size, to);
}

void QuantiseHead(const BF16* from, float inv_scale, int64_t size, float* to) {
  KERNELS_DISPATCH(QuantiseImpl)(from, inv_scale, size, to);
}

void NarrowHead(const float* from, int64_t size, BF16* to) {
  KERNELS_DISPATCH(NarrowImpl)(from, size, to);
}

void CapHeadRow(int64_t vocab, const HeadCurve& curve, float* row) {
  KERNELS_DISPATCH(CapRowImpl)(vocab, curve, row);
}

float HeadLossRow(const HeadRow& shared, const HeadTerms& terms, float* row, float* z) {
  return KERNELS_DISPATCH(LossRowImpl)(shared, terms, row, z);
}

}  // namespace kernels
#endif  // HWY_ONCE
