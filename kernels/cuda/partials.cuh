// The second stage of a gradient sum over tokens: each block of the first stage has written one
// partial sum per value, and they are added here in an order that depends on their number alone.
#ifndef KERNELS_CUDA_PARTIALS_CUH_
#define KERNELS_CUDA_PARTIALS_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/tensor.h"

namespace kernels::cuda {

// One per block of the first stage: f32 [slots, values, blocks]. `blocks` may depend on the size
// of a slot but not on their number.
struct Partials {
  float* data;
  int64_t slots;
  int values;
  int blocks;

  int64_t bytes() const { return slots * values * blocks * int64_t{sizeof(float)}; }
  __device__ float* at(int64_t slot, int value, int block) const {
    return data + (slot * values + value) * blocks + block;
  }
};

// A block per value and leaf. A leaf's slots are added in order.
template <int threads>
__global__ void __launch_bounds__(threads)
    AddPartialsKernel(Partials partials, int first, int64_t slots_per_leaf, float* leaves,
                      int64_t leaf_size) {
  __shared__ float shared[threads / kWarp];
  const int64_t leaf = blockIdx.y;
  float total = 0;
  for (int64_t i = 0; i < slots_per_leaf; ++i) {
    const float* row = partials.at(leaf * slots_per_leaf + i, first + blockIdx.x, 0);
    float sum = 0;
    for (int block = threadIdx.x; block < partials.blocks; block += threads) sum += row[block];
    total += BlockSum<threads>(sum, shared);
    __syncthreads();
  }
  if (threadIdx.x == 0) leaves[leaf * leaf_size + blockIdx.x] += total;
}

// leaves[l, offset + i] += the sum of value first + i, i < count, over the slots of leaf l.
//   leaves  f32 [1 or slots, ...]
inline void AddPartials(const Partials& partials, int first, int count, const Tensor& leaves,
                        int64_t offset, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const dim3 grid(count, static_cast<unsigned>(leaves.dim(0)));
  AddPartialsKernel<kThreads>
      <<<grid, kThreads, 0, stream>>>(partials, first, partials.slots / leaves.dim(0),
                                      leaves.f32() + offset, leaves.size() / leaves.dim(0));
  CheckLaunch("AddPartials");
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_PARTIALS_CUH_
