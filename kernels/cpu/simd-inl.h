// Loads and stores of f32 and bf16 as f32 vectors, for op files that foreach_target.h compiles
// once per instruction set. The tail of a row goes through the same vector code as its body
// (zero-filled, then cut), so a value's bits do not depend on where its row or chunk ends.
#if defined(KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SIMD_INL_H_
#undef KERNELS_CPU_SIMD_INL_H_
#else
#define KERNELS_CPU_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

HWY_INLINE VF LoadVec(DF d, const float* HWY_RESTRICT p) { return hn::LoadU(d, p); }

HWY_INLINE VF LoadVec(DF d, const BF16* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

HWY_INLINE void StoreVec(DF d, VF v, float* HWY_RESTRICT p) { hn::StoreU(v, d, p); }

// To nearest even; NaN stays NaN.
HWY_INLINE void StoreVec(DF d, VF v, BF16* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, upper)), du16, reinterpret_cast<uint16_t*>(p));
  (void)d;
}

// v, each lane rounded to bf16 and back.
HWY_INLINE VF RoundVecToBF16(DF d, VF v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto cut = hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xFFFF0000u)));
  return hn::IfThenElse(hn::IsNaN(v), v, cut);
}

// v rounded to the pointer's type and back.
HWY_INLINE VF RoundLike(DF, VF v, const float*) { return v; }
HWY_INLINE VF RoundLike(DF d, VF v, const BF16*) { return RoundVecToBF16(d, v); }

// The first n < Lanes(d) elements; the other lanes are 0.
template <typename T>
HWY_INLINE VF LoadPart(DF d, const T* HWY_RESTRICT p, int64_t n) {
  T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, p, n * sizeof(T));
  return LoadVec(d, padded);
}

template <typename T>
HWY_INLINE void StorePart(DF d, VF v, T* HWY_RESTRICT p, int64_t n) {
  T padded[HWY_MAX_BYTES / sizeof(float)];
  StoreVec(d, v, padded);
  std::memcpy(p, padded, n * sizeof(T));
}

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// The first n elements, the other lanes 0.
HWY_INLINE VU LoadHalves(DU du, const uint16_t* HWY_RESTRICT p, int64_t n) {
  const hn::Rebind<uint16_t, DU> du16;
  if (n == static_cast<int64_t>(hn::Lanes(du))) return hn::PromoteTo(du, hn::LoadU(du16, p));
  uint16_t padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, p, n * sizeof(uint16_t));
  return hn::PromoteTo(du, hn::LoadU(du16, padded));
}

// Of values below 2^16.
HWY_INLINE void StoreHalves(DU du, VU v, uint16_t* HWY_RESTRICT p, int64_t n) {
  const hn::RebindToSigned<DU> di;
  const hn::Rebind<uint16_t, DU> du16;
  const auto halves = hn::DemoteTo(du16, hn::BitCast(di, v));
  if (n == static_cast<int64_t>(hn::Lanes(du))) {
    hn::StoreU(halves, du16, p);
    return;
  }
  uint16_t padded[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(halves, du16, padded);
  std::memcpy(p, padded, n * sizeof(uint16_t));
}

// The n <= Lanes(d) f32 whose upper and lower 16 bits these are; the other lanes are 0.
HWY_INLINE VF JoinHalves(DF d, const uint16_t* HWY_RESTRICT upper,
                         const uint16_t* HWY_RESTRICT lower, int64_t n) {
  const DU du;
  return hn::BitCast(d,
                     hn::Or(hn::ShiftLeft<16>(LoadHalves(du, upper, n)), LoadHalves(du, lower, n)));
}

HWY_INLINE void SplitHalves(DF, VF v, uint16_t* HWY_RESTRICT upper, uint16_t* HWY_RESTRICT lower,
                            int64_t n) {
  const DU du;
  const VU bits = hn::BitCast(du, v);
  StoreHalves(du, hn::ShiftRight<16>(bits), upper, n);
  StoreHalves(du, hn::And(bits, hn::Set(du, 0xFFFFu)), lower, n);
}

// Calls f(i, n) for each vector of [0, size): n = Lanes(d) for whole vectors, less for the tail.
template <typename F>
HWY_INLINE void ForEachVec(DF d, int64_t size, const F& f) {
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) f(i, lanes);
  if (i < size) f(i, size - i);
}

template <typename T>
HWY_INLINE VF LoadAny(DF d, const T* HWY_RESTRICT p, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(d)) ? LoadVec(d, p) : LoadPart(d, p, n);
}

template <typename T>
HWY_INLINE void StoreAny(DF d, VF v, T* HWY_RESTRICT p, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d))) {
    StoreVec(d, v, p);
  } else {
    StorePart(d, v, p, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
