// The soft cap z = cap l / sqrt(l^2 + cap^2) of logits l, for the kernels of softcap_loss.cu: with
// r = 1 / sqrt(l^2 + cap^2) it is z = cap l r, with the slope (cap r)^3.
//
// Sums are of exp(z), from exp(-cap) to exp(cap) a term. Between the passes a thread keeps the bf16
// logits themselves, so pass 2 is as exact as pass 1.
#ifndef KERNELS_CUDA_SOFTCAP_ISRU_CUH_
#define KERNELS_CUDA_SOFTCAP_ISRU_CUH_

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/softcap_loss.h"
#include "kernels/cuda/softcap_rows.cuh"

namespace kernels::cuda {

// The factors that the formulas need, computed once on the host.
struct IsruFactors {
  float cap;
  float cap_squared;
  float cap_log2;        // cap log2(e)
  float slope_log2;      // log2(cap^3)
  float inv_grad_scale;  // fp8 only
};

// Logits beyond count as this: their squares are finite, their slopes 0 in f32. A bf16 number.
constexpr float kMostLogit = 1152921504606846976.0f;  // 2^60

// Relative error 2^-22.
__device__ __forceinline__ float InverseRoot(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Exp2Poly() whose NaN stays one, for an instruction more: 2^n is a factor.
__device__ __forceinline__ float Exp2PolyOrNaN(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: leaves n in the low bits
  constexpr uint32_t kOneBits = 0x3F800000u;
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  float y = 0.009570101f;
  y = fmaf(y, f, 0.05591786f);
  y = fmaf(y, f, 0.24024744f);
  y = fmaf(y, f, 0.69312179f);
  y = fmaf(y, f, 0.99999928f);
  return y * __uint_as_float((__float_as_uint(shifted) << 23) + kOneBits);
}

// From -kMostLogit to kMostLogit; NaN stays NaN.
__device__ __forceinline__ uint32_t ClampPair(uint32_t pair) {
  const __nv_bfloat162 most = __float2bfloat162_rn(kMostLogit);
  const __nv_bfloat162 least = __float2bfloat162_rn(-kMostLogit);
  const __nv_bfloat162 logits = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  const __nv_bfloat162 clamped = __hmax2_nan(__hmin2_nan(logits, most), least);
  return *reinterpret_cast<const uint32_t*>(&clamped);
}

// Of a target, from its logit.
struct IsruTarget {
  float slope;
  float distance;  // -z: the loss is the log of the row's sum and this
};
__device__ __forceinline__ IsruTarget TargetOf(float logit, const IsruFactors& k) {
  const float l = fabsf(logit) > kMostLogit ? copysignf(kMostLogit, logit) : logit;
  const float ratio = k.cap * rsqrtf(fmaf(l, l, k.cap_squared));
  return {.slope = ratio * ratio * ratio, .distance = -l * ratio};
}

// Its logit's gradient. `sum`: the row's, of exp(z). `weights` of the row's terms, of which those
// of this target have `weight`.
__device__ __forceinline__ float TargetGradient(const IsruTarget& t, float sum, float weights,
                                                float weight, const IsruFactors&) {
  const float p = expf(-t.distance) / sum;
  return (weights * p - weight) * t.slope;
}

// See SigmoidCurve.
struct IsruCurve {
  using Factors = IsruFactors;
  static Factors MakeFactors(const SoftcapCurve& curve, float grad_scale) {
    const double cap = curve.cap;
    return {.cap = curve.cap,
            .cap_squared = static_cast<float>(cap * cap),
            .cap_log2 = static_cast<float>(cap * kLog2E),
            .slope_log2 = static_cast<float>(3 * std::log2(cap)),
            .inv_grad_scale = 1.0f / grad_scale};
  }

  // Half of the exponentials are polynomials: roots and exponentials share one unit.
  static __device__ __forceinline__ uint4 Sum(const uint4& logits, const Factors& k, float& sum) {
    const uint4 kept = Clamp(logits);
    float s[8];
    Shares(kept, k, s);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float z_log2 = s[i] * k.cap_log2;
      s[i] = i % 2 == 0 ? Exp2PolyOrNaN(z_log2) : Exp2(z_log2);
    }
    sum += ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    return kept;
  }

  static __device__ __forceinline__ float Offset(float sum, const Factors& k) {
    return k.slope_log2 - __log2f(sum);
  }

  static __device__ __forceinline__ float Common(float offset, const Factors&) { return offset; }

  // p (cap r)^3. Where r^2 is tiny, p cap^3 r is a normal number still.
  static __device__ __forceinline__ uint4 Gradients(const uint4& kept, const Factors& k,
                                                    float common) {
    float g[8];
    UnpackWords({kept.x, kept.y, kept.z, kept.w}, g);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float r = InverseRoot(fmaf(g[i], g[i], k.cap_squared));
      g[i] = Exp2(fmaf(g[i] * r, k.cap_log2, common)) * r * (r * r);
    }
    const BF16x8 rounded = Pack(g);
    return *reinterpret_cast<const uint4*>(&rounded);
  }

  static __device__ __forceinline__ uint2 GradientsE5M2(const uint4& kept, const Factors& k,
                                                        float common) {
    return ToE5M2(Gradients(kept, k, common), k.inv_grad_scale);
  }

  static __device__ __forceinline__ void Z(const uint4& logits, const Factors& k, float (&z)[8]) {
    Shares(Clamp(logits), k, z);
#pragma unroll
    for (int i = 0; i < 8; ++i) z[i] *= k.cap;
  }

 private:
  static __device__ __forceinline__ uint4 Clamp(const uint4& logits) {
    return make_uint4(ClampPair(logits.x), ClampPair(logits.y), ClampPair(logits.z),
                      ClampPair(logits.w));
  }
  // z / cap
  static __device__ __forceinline__ void Shares(const uint4& logits, const Factors& k,
                                                float (&s)[8]) {
    UnpackWords({logits.x, logits.y, logits.z, logits.w}, s);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i] *= InverseRoot(fmaf(s[i], s[i], k.cap_squared));
  }
};

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SOFTCAP_ISRU_CUH_
