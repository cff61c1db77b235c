// What the kernels share: bf16 vectors, warp and block sums. All orders are fixed, so that a run
// repeats bit for bit.
#ifndef KERNELS_CUDA_DEVICE_CUH_
#define KERNELS_CUDA_DEVICE_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace kernels::cuda {

constexpr int kWarp = 32;

// 16 bytes: what one thread loads at once.
struct alignas(16) BF16x8 {
  __nv_bfloat162 pair[4];
};

// Through int4: the members' own copies would become four accesses of 4 bytes.
__device__ __forceinline__ BF16x8 Load8(const BF16* p) {
  const int4 bits = *reinterpret_cast<const int4*>(p);
  return *reinterpret_cast<const BF16x8*>(&bits);
}
// Of data that is not read again soon.
__device__ __forceinline__ BF16x8 LoadStreaming8(const BF16* p) {
  const int4 bits = __ldcs(reinterpret_cast<const int4*>(p));
  return *reinterpret_cast<const BF16x8*>(&bits);
}
__device__ __forceinline__ void Store8(BF16* p, const BF16x8& v) {
  *reinterpret_cast<int4*>(p) = *reinterpret_cast<const int4*>(&v);
}
__device__ __forceinline__ void Unpack(const BF16x8& v, float (&f)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(v.pair[i]);
    f[2 * i] = pair.x;
    f[2 * i + 1] = pair.y;
  }
}
// Rounds to nearest, ties to even.
__device__ __forceinline__ BF16x8 Pack(const float (&f)[8]) {
  BF16x8 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.pair[i] = __floats2bfloat162_rn(f[2 * i], f[2 * i + 1]);
  return v;
}
__device__ __forceinline__ float ToF32(BF16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
__device__ __forceinline__ BF16 Round(float x) {
  return BF16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
__device__ __forceinline__ float RoundF32(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

// The sum over a warp (or over aligned groups of `lanes` lanes), in every lane.
template <int lanes = kWarp>
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  }
  return x;
}

// The sum over a block of `threads` threads (a multiple of 32), in every thread. `shared` holds
// threads / 32 floats and is free again after the next __syncthreads().
template <int threads>
__device__ __forceinline__ float BlockSum(float x, float* shared) {
  static_assert(threads % kWarp == 0);
  x = WarpSum(x);
  if constexpr (threads == kWarp) return x;
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < threads / kWarp; ++warp) sum += shared[warp];
  return sum;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_DEVICE_CUH_
