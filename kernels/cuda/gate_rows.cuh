// What the ops with a sigmoid gate a token and head share. A warp does a token: for the gates lane
// `head` stands for a head, for the features that gates read lane `feature` for a feature; of a row
// of heads a lane holds vectors lane, lane + 32, ...
#ifndef KERNELS_CUDA_GATE_ROWS_CUH_
#define KERNELS_CUDA_GATE_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/partials.cuh"

namespace kernels::cuda {

constexpr int kGateThreads = 256;
constexpr int kGateWarps = kGateThreads / kWarp;
constexpr int kMaxGateHeads = 32;  // lanes
constexpr int kMaxGateFeatures = 16;
// Vectors of a row that a lane loads before it uses the first: all of a row of 768.
constexpr int kGateInFlight = 3;
// Of one slot in a backward pass: whole waves of two or three blocks on 132 SMs.
constexpr int64_t kMaxGateBlocks = 132 * 6;

// The weights [heads, k] in f32, zero where there is no head or feature. The odd stride lets 32
// lanes read one feature of 32 heads without bank conflicts.
struct GateWeights {
  static constexpr int kStride = kMaxGateFeatures + 1;

  // Ends with a barrier.
  __device__ void Load(const BF16* weights, int heads, int k) {
    for (int i = threadIdx.x; i < kMaxGateHeads * kMaxGateFeatures; i += kGateThreads) {
      const int head = i / kMaxGateFeatures, feature = i % kMaxGateFeatures;
      const bool real = head < heads && feature < k;
      w[head * kStride + feature] = real ? ToF32(weights[head * k + feature]) : 0.0f;
    }
    __syncthreads();
  }
  __device__ float At(int head, int feature) const { return w[head * kStride + feature]; }

  // The sigmoid of lane `head`, from u of lane `feature`.
  __device__ __forceinline__ float Gate(float u) const {
    const int lane = threadIdx.x % kWarp;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kMaxGateFeatures; ++i) {
      dot += At(lane, i) * __shfl_sync(0xffffffffu, u, i);
    }
    return Sigmoid(dot);
  }

  // The gradient of u of lane `feature`, from the gradient of the logit of lane `head`.
  __device__ __forceinline__ float UGrad(float slope, int heads) const {
    const int lane = threadIdx.x % kWarp;
    float du = 0;
    for (int head = 0; head < heads; ++head) {
      du += At(head, lane % kMaxGateFeatures) * __shfl_sync(0xffffffffu, slope, head);
    }
    return du;
  }

  float w[kMaxGateHeads * kStride];
};

// The factor of the head that vector `vector` of a row belongs to, from lane `head`.
template <int head_dim>
__device__ __forceinline__ float OfVectorsHead(float of_head, int vector) {
  return __shfl_sync(0xffffffffu, of_head, vector / (head_dim / 8) % kWarp);
}

// From `dot` of each lane's vector `chunk * 32 + lane` to the sum of lane `head`'s vectors, which
// replaces `mine` in the lanes whose head is among these vectors.
template <int head_dim>
__device__ __forceinline__ void CollectHeadSums(float dot, int chunk, float& mine) {
  constexpr int kHeadVectors = head_dim / 8;
  constexpr int kHeadsAtOnce = kWarp / kHeadVectors;  // that a warp's vectors cover
  const int lane = threadIdx.x % kWarp;
  dot = WarpSum<kHeadVectors>(dot);
  const float dots = __shfl_sync(0xffffffffu, dot, lane % kHeadsAtOnce * kHeadVectors);
  if (lane / kHeadsAtOnce == chunk) mine = dots;
}

// The gradient of the weights over a block's tokens.
struct GateWeightSums {
  // From lane `head`'s sums; writes value head * k + feature of the block's partials.
  __device__ __forceinline__ void Write(const float (&dw)[kMaxGateFeatures], int heads, int k,
                                        const Partials& partials) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
    for (int i = 0; i < kMaxGateFeatures; ++i) sums[warp][lane * GateWeights::kStride + i] = dw[i];
    __syncthreads();
    for (int i = threadIdx.x; i < heads * k; i += kGateThreads) {
      float sum = 0;
      for (int w = 0; w < kGateWarps; ++w) sum += sums[w][i / k * GateWeights::kStride + i % k];
      *partials.at(blockIdx.y, i, blockIdx.x) = sum;
    }
  }

  float sums[kGateWarps][kMaxGateHeads * GateWeights::kStride];
};

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_GATE_ROWS_CUH_
