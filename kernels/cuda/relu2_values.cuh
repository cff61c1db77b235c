// What the epilogue of relu2_gemm.cu does to pairs of bf16 and to vectors of four pairs.
#ifndef KERNELS_CUDA_RELU2_VALUES_CUH_
#define KERNELS_CUDA_RELU2_VALUES_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace kernels::cuda {

__device__ __forceinline__ __nv_bfloat162 Pair(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}
__device__ __forceinline__ uint32_t Bits(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Four threads hold a 4 x 4 matrix, one a row: transposes it.
__device__ __forceinline__ void Transpose4(uint32_t (&v)[4], int t) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = t & bit;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low_at = bit == 1 ? 2 * pair : pair;
      uint32_t& low = v[low_at];
      uint32_t& other = v[low_at + bit];
      const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? low : other, bit);
      low = high ? got : low;
      other = high ? other : got;
    }
  }
}

// max(a, 0)^2, NaN of NaN. The product of two bf16 is rounded once.
__device__ __forceinline__ uint32_t Relu2(uint32_t a) {
  const __nv_bfloat162 positive = __hmax2_nan(Pair(a), Pair(0));
  return Bits(__hmul2_rn(positive, positive));
}

// p * 2 max(a, 0): doubling is exact.
__device__ __forceinline__ uint32_t Relu2Grad(uint32_t p, uint32_t a) {
  const __nv_bfloat162 positive = __hmax2(Pair(a), Pair(0));
  return Bits(__hmul2_rn(Pair(p), __hadd2_rn(positive, positive)));
}

// 16 bytes, if at all. Without a branch, so that the loads and stores of a tile go out in a row.
__device__ __forceinline__ void LoadIf(bool inside, const BF16* from, uint32_t (&v)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])
      : "l"(from), "r"(static_cast<int>(inside))
      : "memory");
}
__device__ __forceinline__ void StoreIf(bool inside, BF16* to, const uint32_t (&v)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(static_cast<int>(inside))
      : "memory");
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_RELU2_VALUES_CUH_
