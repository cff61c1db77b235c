// Rounding to the values of an fp8 format, held in f32 lanes: the vector form of RoundToFp8 in
// kernels/dtype.h, equal to it for every input. Used after foreach_target.h.
#if defined(KERNELS_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_FP8_INL_H_
#undef KERNELS_CPU_FP8_INL_H_
#else
#define KERNELS_CPU_FP8_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {

// To nearest, ties to even; saturates at kMaxFinite, infinities too; NaN stays NaN.
//
// For |v| in [2^e, 2^(e+1)) the power 2^(e + 23 - kMantissaBits) has an f32 spacing of
// 2^(e - kMantissaBits), the spacing of the fp8 format at v: adding it rounds, and subtracting
// it again is exact. Below the smallest normal, e stays at kMinExponent: subnormals.
template <int kMantissaBits, int kMinExponent, int kMaxFinite>
HWY_INLINE VF RoundVecToFp8(DF d, VF v) {
  const hn::RebindToUnsigned<DF> du;
  const VF magnitude = hn::Min(hn::Abs(v), hn::Set(d, static_cast<float>(kMaxFinite)));
  const auto exponent = hn::And(hn::BitCast(du, magnitude), hn::Set(du, 0x7F800000u));
  const auto least = hn::Set(du, uint32_t{kMinExponent + 127} << 23);
  const auto shift = hn::Set(du, uint32_t{23 - kMantissaBits} << 23);
  const VF power = hn::BitCast(d, hn::Add(hn::Max(exponent, least), shift));
  const VF rounded = hn::Sub(hn::Add(magnitude, power), power);
  return hn::IfThenElse(hn::IsNaN(v), v, hn::CopySignToAbs(rounded, v));
}

HWY_INLINE VF RoundVecToE4M3(DF d, VF v) { return RoundVecToFp8<3, -6, 448>(d, v); }
HWY_INLINE VF RoundVecToE5M2(DF d, VF v) { return RoundVecToFp8<2, -14, 57344>(d, v); }

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
