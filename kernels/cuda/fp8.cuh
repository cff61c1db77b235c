// Conversions to the 8-bit floating point formats (OCP, 2023), two values in one instruction, and
// the transposition of 4 x 4 bytes in registers.
#ifndef KERNELS_CUDA_FP8_CUH_
#define KERNELS_CUDA_FP8_CUH_

#include <cuda_fp8.h>

#include <cstdint>

namespace kernels::cuda {

// To nearest, ties to even; saturating at 448 or 57344, infinities too; NaN stays NaN. `a` goes
// to the first byte.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t ToFp8x2(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFormat);
}

template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t ToFp8x4(float a, float b, float c, float d) {
  return ToFp8x2<kFormat>(a, b) | ToFp8x2<kFormat>(c, d) << 16;
}

// Byte j of word i goes to byte i of word j.
__device__ __forceinline__ void Transpose4x4(uint32_t (&word)[4]) {
  const uint32_t low01 = __byte_perm(word[0], word[1], 0x5140);
  const uint32_t low23 = __byte_perm(word[2], word[3], 0x5140);
  const uint32_t high01 = __byte_perm(word[0], word[1], 0x7362);
  const uint32_t high23 = __byte_perm(word[2], word[3], 0x7362);
  word[0] = __byte_perm(low01, low23, 0x5410);
  word[1] = __byte_perm(low01, low23, 0x7632);
  word[2] = __byte_perm(high01, high23, 0x5410);
  word[3] = __byte_perm(high01, high23, 0x7632);
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_FP8_CUH_
