// Elementwise optimizer ops: the loads and stores, the kernel and its launch. An op is a struct
// with
//
//   void Begin(int64_t matrix);     reads rates, moves pointers to the matrix
//   void Run<count>(int64_t i);     elements i to i + count - 1; count is 1 or kQuad
//
// Bits must not depend on how a range is cut into vectors and tail: ops ask for each multiply, add
// and fused multiply-add by name, so that the compiler chooses no contraction.
#ifndef KERNELS_CUDA_OPTIMIZER_ELEMENTWISE_CUH_
#define KERNELS_CUDA_OPTIMIZER_ELEMENTWISE_CUH_

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/tensor.h"

namespace kernels::cuda {

constexpr int kElementwiseThreads = 256;
// Elements a thread of an elementwise op: 16 bytes of f32, which most of the operands are, and 8
// of bf16, so that a warp's accesses are whole lines for both.
constexpr int kQuad = 4;

__device__ __forceinline__ void Load(const float* p, float (&x)[1]) { x[0] = *p; }
__device__ __forceinline__ void Load(const BF16* p, float (&x)[1]) { x[0] = ToF32(*p); }
__device__ __forceinline__ void Load(const float* p, float (&x)[kQuad]) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  x[0] = v.x;
  x[1] = v.y;
  x[2] = v.z;
  x[3] = v.w;
}
__device__ __forceinline__ void Load(const BF16* p, float (&x)[kQuad]) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  x[0] = __uint_as_float(v.x << 16);
  x[1] = __uint_as_float(v.x & 0xffff0000u);
  x[2] = __uint_as_float(v.y << 16);
  x[3] = __uint_as_float(v.y & 0xffff0000u);
}

__device__ __forceinline__ void Store(float* p, const float (&x)[1]) { *p = x[0]; }
__device__ __forceinline__ void Store(BF16* p, const float (&x)[1]) { *p = Round(x[0]); }
__device__ __forceinline__ void Store(float* p, const float (&x)[kQuad]) {
  *reinterpret_cast<float4*>(p) = make_float4(x[0], x[1], x[2], x[3]);
}
__device__ __forceinline__ void Store(BF16* p, const float (&x)[kQuad]) {
  uint2 v;
  v.x = Round(x[0]).bits | uint32_t{Round(x[1]).bits} << 16;
  v.y = Round(x[2]).bits | uint32_t{Round(x[3]).bits} << 16;
  *reinterpret_cast<uint2*>(p) = v;
}

// 16 bits each, as they are.
__device__ __forceinline__ void LoadBits(const uint16_t* p, uint32_t (&x)[1]) { x[0] = *p; }
__device__ __forceinline__ void LoadBits(const uint16_t* p, uint32_t (&x)[kQuad]) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  x[0] = v.x & 0xffffu;
  x[1] = v.x >> 16;
  x[2] = v.y & 0xffffu;
  x[3] = v.y >> 16;
}

// The lower halves of x.
__device__ __forceinline__ void StoreBits(uint16_t* p, const uint32_t (&x)[1]) {
  *p = static_cast<uint16_t>(x[0]);
}
__device__ __forceinline__ void StoreBits(uint16_t* p, const uint32_t (&x)[kQuad]) {
  uint2 v;
  v.x = (x[0] & 0xffffu) | x[1] << 16;
  v.y = (x[2] & 0xffffu) | x[3] << 16;
  *reinterpret_cast<uint2*>(p) = v;
}

__device__ __forceinline__ float RoundLike(float x, const float*) { return x; }
__device__ __forceinline__ float RoundLike(float x, const BF16*) { return RoundF32(x); }

// Elements [0, n) of matrix blockIdx.y.
template <typename Op>
__global__ void Elementwise(Op op, int64_t n, const int32_t* guard, bool vectors) {
  if (guard != nullptr && *guard == 0) return;
  const int64_t i = (int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x) * kQuad;
  if (i >= n) return;
  op.Begin(blockIdx.y);
  if (vectors && i + kQuad <= n) {
    op.template Run<kQuad>(i);
    return;
  }
  for (int64_t j = i; j < n && j < i + kQuad; ++j) op.template Run<1>(j);
}

inline bool Aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

template <typename Op>
void LaunchElementwise(const char* name, const Op& op, int64_t matrices, int64_t n,
                       const Tensor& guard, bool aligned, CudaQueue& queue) {
  if (matrices == 0 || n == 0) return;
  // Matrices of odd sizes put the later ones off.
  const bool vectors = aligned && (matrices == 1 || n % kQuad == 0);
  const dim3 grid(CeilDiv(n, kElementwiseThreads * kQuad), matrices);
  Elementwise<<<grid, kElementwiseThreads, 0, queue.stream()>>>(
      op, n, guard.empty() ? nullptr : guard.i32(), vectors);
  CheckLaunch(name);
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_OPTIMIZER_ELEMENTWISE_CUH_
