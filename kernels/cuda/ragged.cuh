// Vectors of eight bf16 of a row whose end, or whose start, need not be aligned.
#ifndef KERNELS_CUDA_RAGGED_CUH_
#define KERNELS_CUDA_RAGGED_CUH_

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/dtype.h"

namespace kernels::cuda {

constexpr int kVector = 8;

// u[i] to u[i + 7], zeros from n on. `vectors`: u + i is aligned. Packed, so that nothing waits for
// the data here and several loads can be under way.
__device__ __forceinline__ BF16x8 LoadRagged8(const BF16* u, int64_t i, int64_t n, bool vectors) {
  if (vectors && i + kVector <= n) return Load8(u + i);
  const auto bits = [&](int64_t at) { return at < n ? uint32_t{u[at].bits} : 0u; };
  uint4 words;
  words.x = bits(i) | bits(i + 1) << 16;
  words.y = bits(i + 2) | bits(i + 3) << 16;
  words.z = bits(i + 4) | bits(i + 5) << 16;
  words.w = bits(i + 6) | bits(i + 7) << 16;
  return *reinterpret_cast<const BF16x8*>(&words);
}

// x[i] to x[i + 7], but none from n on, rounded.
__device__ __forceinline__ void StoreRagged8(BF16* x, int64_t i, int64_t n, bool vectors,
                                             const float (&v)[kVector]) {
  if (vectors && i + kVector <= n) {
    Store8(x + i, Pack(v));
    return;
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    if (i + j < n) x[i + j] = Round(v[j]);
  }
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_RAGGED_CUH_
