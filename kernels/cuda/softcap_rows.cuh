// The arithmetic of one thread on a row of logits: soft cap, exponentials, gradients. See
// softcap_loss.cu for how a row goes through it. Here the sigmoid's, and what IsruCurve shares.
#ifndef KERNELS_CUDA_SOFTCAP_ROWS_CUH_
#define KERNELS_CUDA_SOFTCAP_ROWS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/softcap_loss.h"

namespace kernels::cuda {

constexpr double kLog2E = 1.4426950408889634;
constexpr int kVec = 8;                   // logits in one 16-byte load
constexpr float kOne = 65535.0f;          // the fixed-point 1
constexpr float kOneLog2 = 15.999978f;    // log2(kOne)
constexpr float kShift = 8388608.0f;      // 2^23: adding it leaves an integer in the low bits
constexpr uint32_t kShiftBits = 0x4B00u;  // its upper half

// The factors that the sigmoid's formulas need, computed once on the host.
struct SigmoidFactors {
  float softcap;
  float inv_temperature;
  float slope;  // cap / temperature
  float shift;
  float logit_log2;      // -log2(e) / temperature
  float shift_log2;      // -shift log2(e) / temperature
  float cap_log2;        // cap log2(e)
  float kept_log2;       // cap log2(e) / 65535
  float slope_log2;      // log2(cap / temperature / 65535^2)
  float inv_grad_scale;  // fp8 only
};

inline SigmoidFactors MakeSigmoidFactors(const SoftcapCurve& curve, float grad_scale) {
  const double cap_log2 = curve.cap * kLog2E;
  const double slope = static_cast<double>(curve.cap) / curve.temperature;
  return {.softcap = curve.cap,
          .inv_temperature = 1.0f / curve.temperature,
          .slope = curve.cap / curve.temperature,
          .shift = curve.shift,
          .logit_log2 = static_cast<float>(-kLog2E / curve.temperature),
          .shift_log2 = static_cast<float>(-kLog2E * curve.shift / curve.temperature),
          .cap_log2 = static_cast<float>(cap_log2),
          .kept_log2 = static_cast<float>(cap_log2 / kOne),
          .slope_log2 = static_cast<float>(std::log2(slope / kOne / kOne)),
          .inv_grad_scale = 1.0f / grad_scale};
}

// Relative error 2^-22; results below 2^-126 become 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The same on the multiply-add pipe, to a relative error of 3e-6: for |x| < 126 (so not for NaN).
// x = n + f, |f| <= 1/2; a polynomial (fitted for the least relative error) gives 2^f, and n is
// added to its exponent.
__device__ __forceinline__ float Exp2Poly(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: leaves n in the low bits
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  float y = 0.009570101f;
  y = fmaf(y, f, 0.05591786f);
  y = fmaf(y, f, 0.24024744f);
  y = fmaf(y, f, 0.69312179f);
  y = fmaf(y, f, 0.99999928f);
  return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// NaN if one of them is.
__device__ __forceinline__ float MinOrNaN(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// One instruction per value; Unpack() takes two for the upper ones.
__device__ __forceinline__ void UnpackWords(const uint32_t (&word)[4], float (&f)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    f[2 * i] = __uint_as_float(word[i] << 16);
    f[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000u);
  }
}

// Sigmoids of 8 logits. Four share a reciprocal: 1 / a = b c d / (a b c d). To keep the product
// finite, shifted logits below -21 temperatures count as -21; c is 5e-10 there.
// kShifted = false: with a shift of 0, for one register less.
template <bool kShifted>
__device__ __forceinline__ void Sigmoids(const uint4& logits, const SigmoidFactors& k,
                                         float (&c)[8]) {
  float y[8];
  UnpackWords({logits.x, logits.y, logits.z, logits.w}, y);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float exponent = kShifted ? fmaf(y[i], k.logit_log2, k.shift_log2) : y[i] * k.logit_log2;
    y[i] = 1.0f + Exp2(MinOrNaN(exponent, 31.0f));
  }
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float first = y[i] * y[i + 1];
    const float second = y[i + 2] * y[i + 3];
    const float all = Reciprocal(first * second);
    const float inv_first = all * second;
    const float inv_second = all * first;
    c[i] = inv_first * y[i + 1];
    c[i + 1] = inv_first * y[i];
    c[i + 2] = inv_second * y[i + 3];
    c[i + 3] = inv_second * y[i + 2];
  }
}

// exp(z - cap). A quarter of the exponentials are polynomials, which evens the load of pass 1 on
// its two bottlenecks. They turn NaN into a number; the c of the same four classes are all NaN
// then, so the sum is NaN still.
__device__ __forceinline__ void Exponentials(const float (&c)[8], float cap_log2, float (&e)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float z_log2 = fmaf(c[i], cap_log2, -cap_log2);
    e[i] = i % 4 == 0 ? Exp2Poly(z_log2) : Exp2(z_log2);
  }
}
__device__ __forceinline__ float SumOf(const float (&e)[8]) {
  return ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
}

__device__ __forceinline__ uint4 Keep(const float (&c)[8]) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = __float_as_uint(fmaf(c[2 * i], kOne, kShift));
    const uint32_t high = __float_as_uint(fmaf(c[2 * i + 1], kOne, kShift));
    word[i] = __byte_perm(low, high, 0x5410);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// g of 8 classes that are not the target: p * slope * c (1 - c), where `offset` holds the log2 of
// all that the row has in common.
__device__ __forceinline__ uint4 Gradients(const uint4& kept, float kept_log2, float offset) {
  const uint32_t word[4] = {kept.x, kept.y, kept.z, kept.w};
  float g[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t bits = __byte_perm(word[i / 2], kShiftBits, i % 2 == 0 ? 0x5410 : 0x5432);
    const float u = __uint_as_float(bits) - kShift;
    g[i] = Exp2(fmaf(u, kept_log2, offset)) * u * (kOne - u);
  }
  const BF16x8 rounded = Pack(g);
  return *reinterpret_cast<const uint4*>(&rounded);
}

// Of 8 bf16 numbers times `factor`.
__device__ __forceinline__ uint2 ToE5M2(const uint4& numbers, float factor) {
  float f[8];
  UnpackWords({numbers.x, numbers.y, numbers.z, numbers.w}, f);
#pragma unroll
  for (int i = 0; i < 8; ++i) f[i] *= factor;
  return make_uint2(ToFp8x4<__NV_E5M2>(f[0], f[1], f[2], f[3]),
                    ToFp8x4<__NV_E5M2>(f[4], f[5], f[6], f[7]));
}

// Of a target, from its logit itself, with neither overflow nor cancellation in 1 - c.
struct SigmoidTarget {
  float larger;    // sigmoid(|y|), y = (logit + shift) / temperature
  float smaller;   // sigmoid(-|y|)
  float distance;  // cap - z
};
__device__ __forceinline__ SigmoidTarget TargetOf(float logit, const SigmoidFactors& k) {
  const float y = (logit + k.shift) * k.inv_temperature;
  const float e = expf(-fabsf(y));
  const float larger = 1.0f / (1.0f + e);
  const float smaller = e * larger;
  return {.larger = larger, .smaller = smaller, .distance = k.softcap * (y < 0 ? larger : smaller)};
}

// Its logit's gradient. `sum`: the row's, of exp(z - cap). `weights` of the row's terms, of which
// those of this target have `weight`.
__device__ __forceinline__ float TargetGradient(const SigmoidTarget& t, float sum, float weights,
                                                float weight, const SigmoidFactors& k) {
  const float p = expf(-t.distance) / sum;
  return (weights * p - weight) * k.slope * t.larger * t.smaller;
}

// A soft cap as the kernels of softcap_loss.cu take it. Sums are of exp(z - cap).
template <bool kShifted>
struct SigmoidCurve {
  using Factors = SigmoidFactors;
  static Factors MakeFactors(const SoftcapCurve& curve, float grad_scale) {
    return MakeSigmoidFactors(curve, grad_scale);
  }
  // Adds 8 logits' exponentials to the row's sum; returns what pass 2 needs of them.
  static __device__ __forceinline__ uint4 Sum(const uint4& logits, const Factors& k, float& sum) {
    float c[8];
    Sigmoids<kShifted>(logits, k, c);
    const uint4 kept = Keep(c);
    float e[8];
    Exponentials(c, k.cap_log2, e);
    sum += SumOf(e);
    return kept;
  }
  // The log2 of what the gradients of a row have in common, their weights aside.
  static __device__ __forceinline__ float Offset(float sum, const Factors& k) {
    return k.slope_log2 - k.cap_log2 - __log2f(sum);
  }
  // What pass 2 takes, of the offset with the weights.
  static __device__ __forceinline__ float Common(float offset, const Factors&) { return offset; }
  static __device__ __forceinline__ uint4 Gradients(const uint4& kept, const Factors& k,
                                                    float common) {
    return cuda::Gradients(kept, k.kept_log2, common);
  }
  static __device__ __forceinline__ uint2 GradientsE5M2(const uint4& kept, const Factors& k,
                                                        float common) {
    return ToE5M2(Gradients(kept, k, common), k.inv_grad_scale);
  }
  static __device__ __forceinline__ void Z(const uint4& logits, const Factors& k, float (&z)[8]) {
    Sigmoids<kShifted>(logits, k, z);
#pragma unroll
    for (int j = 0; j < 8; ++j) z[j] = k.softcap * z[j];
  }
};

// For e5m2 gradients: what is kept is the gradient but for the row's factor, exp(z - cap) c (1 -
// c), rounded to bf16, so that pass 2 is a product. It takes the place of the gradient's rounding
// to bf16: either is followed by the rounding to e5m2, which is 64 times as coarse.
template <bool kShifted>
struct SigmoidFp8Curve : SigmoidCurve<kShifted> {
  using Factors = SigmoidFactors;
  static __device__ __forceinline__ uint4 Sum(const uint4& logits, const Factors& k, float& sum) {
    float c[8], e[8];
    Sigmoids<kShifted>(logits, k, c);
    Exponentials(c, k.cap_log2, e);
    sum += SumOf(e);
#pragma unroll
    for (int i = 0; i < 8; ++i) e[i] *= fmaf(-c[i], c[i], c[i]);
    const BF16x8 kept = Pack(e);
    return *reinterpret_cast<const uint4*>(&kept);
  }
  static __device__ __forceinline__ float Offset(float sum, const Factors& k) {
    return k.slope_log2 + 2 * kOneLog2 - __log2f(sum);
  }
  static __device__ __forceinline__ float Common(float offset, const Factors& k) {
    return Exp2(offset) * k.inv_grad_scale;
  }
  static __device__ __forceinline__ uint2 GradientsE5M2(const uint4& kept, const Factors&,
                                                        float common) {
    return ToE5M2(kept, common);
  }
};

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SOFTCAP_ROWS_CUH_
