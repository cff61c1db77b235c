// QK norm with rotary on neighbouring features, for op files that foreach_target.h compiles once
// per instruction set. A pair of bf16 is one 32-bit lane, so that nothing is shuffled.
#if defined(KERNELS_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_PAIRS_INL_H_
#undef KERNELS_CPU_PAIRS_INL_H_
#else
#define KERNELS_CPU_PAIRS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/gates-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/norm.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "the first of a pair is the low half");

struct VecPair {
  VF even, odd;
};

// The first n <= Lanes(d) pairs; the other lanes are 0.
HWY_INLINE VecPair LoadPairs(DF d, const BF16* HWY_RESTRICT p, int64_t n) {
  const hn::RebindToUnsigned<DF> du;
  uint32_t padded[HWY_MAX_BYTES / sizeof(uint32_t)];
  const uint32_t* from = padded;
  if (n == static_cast<int64_t>(hn::Lanes(d))) {
    from = reinterpret_cast<const uint32_t*>(p);
  } else {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, p, n * sizeof(uint32_t));
  }
  const auto bits = hn::LoadU(du, from);
  return {hn::BitCast(d, hn::ShiftLeft<16>(bits)),
          hn::BitCast(d, hn::And(bits, hn::Set(du, 0xFFFF0000u)))};
}

// Rounds to bf16, to nearest even.
HWY_INLINE void StorePairs(DF d, const VecPair& v, BF16* HWY_RESTRICT p, int64_t n) {
  const hn::RebindToUnsigned<DF> du;
  const auto even = hn::BitCast(du, RoundVecToBF16(d, v.even));
  const auto odd = hn::BitCast(du, RoundVecToBF16(d, v.odd));
  const auto bits = hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(du, 0xFFFF0000u)));
  if (n == static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(bits, du, reinterpret_cast<uint32_t*>(p));
  } else {
    uint32_t padded[HWY_MAX_BYTES / sizeof(uint32_t)];
    hn::StoreU(bits, du, padded);
    std::memcpy(p, padded, n * sizeof(uint32_t));
  }
}

// y = rotary(x * inv_rms) of one head of `size` features; returns inv_rms.
HWY_INLINE float NormRotaryPairs(const BF16* HWY_RESTRICT x, const BF16* HWY_RESTRICT cos,
                                 const BF16* HWY_RESTRICT sin, int64_t size, BF16* HWY_RESTRICT y) {
  const DF d;
  const float mean = Dot(x, x, size) / static_cast<float>(size);
  const float inv_rms = 1.0f / std::sqrt(mean + kRmsEpsilon);
  const VF scale = hn::Set(d, inv_rms);
  ForEachVec(d, size / 2, [&](int64_t i, int64_t n) {
    const VecPair raw = LoadPairs(d, x + 2 * i, n);
    const VF x0 = hn::Mul(raw.even, scale);
    const VF x1 = hn::Mul(raw.odd, scale);
    const VF c = LoadAny(d, cos + i, n);
    const VF s = LoadAny(d, sin + i, n);
    StorePairs(d, {hn::MulAdd(x0, c, hn::Mul(x1, s)), hn::NegMulAdd(x0, s, hn::Mul(x1, c))},
               y + 2 * i, n);
  });
  return inv_rms;
}

// Where the gradient of a head comes from: its quarters 0 and 2 from `kept`, 1 and 3 from `moved`
// plus `also`, each of them null for zero.
struct HeadGradSource {
  const BF16* kept;
  const BF16* moved;
  const BF16* also;
};

// dx of one head, with dn = rotary' dy and n = x * inv_rms: dx = inv_rms * (dn - n * mean(n * dn)).
// `dn` is scratch of `size`: even features, then odd ones.
HWY_INLINE void NormRotaryPairsGrad(const HeadGradSource& dy, const BF16* HWY_RESTRICT x,
                                    float inv_rms, const BF16* HWY_RESTRICT cos,
                                    const BF16* HWY_RESTRICT sin, int64_t size,
                                    float* HWY_RESTRICT dn, BF16* HWY_RESTRICT dx) {
  const DF d;
  const int64_t half = size / 2;
  VF dot = hn::Zero(d);
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    const BF16* from = quarter % 2 == 0 ? dy.kept : dy.moved;
    const BF16* also = quarter % 2 == 0 ? nullptr : dy.also;
    ForEachVec(d, half / 4, [&](int64_t in_quarter, int64_t n) {
      const int64_t i = quarter * (half / 4) + in_quarter;
      VecPair g = {hn::Zero(d), hn::Zero(d)};
      if (from != nullptr) g = LoadPairs(d, from + 2 * i, n);
      if (also != nullptr) {
        const VecPair more = LoadPairs(d, also + 2 * i, n);
        g = {hn::Add(g.even, more.even), hn::Add(g.odd, more.odd)};
      }
      const VF c = LoadAny(d, cos + i, n);
      const VF s = LoadAny(d, sin + i, n);
      const VF dn0 = hn::NegMulAdd(g.odd, s, hn::Mul(g.even, c));
      const VF dn1 = hn::MulAdd(g.even, s, hn::Mul(g.odd, c));
      const VecPair raw = LoadPairs(d, x + 2 * i, n);
      dot = hn::MulAdd(raw.even, dn0, hn::MulAdd(raw.odd, dn1, dot));
      StoreAny(d, dn0, dn + i, n);
      StoreAny(d, dn1, dn + half + i, n);
    });
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, dot)) * inv_rms / static_cast<float>(size);
  const VF factor = hn::Set(d, mean * inv_rms);
  const VF scale = hn::Set(d, inv_rms);
  ForEachVec(d, half, [&](int64_t i, int64_t n) {
    const VecPair raw = LoadPairs(d, x + 2 * i, n);
    const VF dx0 = hn::NegMulAdd(raw.even, factor, LoadAny(d, dn + i, n));
    const VF dx1 = hn::NegMulAdd(raw.odd, factor, LoadAny(d, dn + half + i, n));
    StorePairs(d, {hn::Mul(dx0, scale), hn::Mul(dx1, scale)}, dx + 2 * i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
