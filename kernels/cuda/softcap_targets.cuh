// The targets of a row of logits, seen from one thread of softcap_loss.cu's gradient kernel.
#ifndef KERNELS_CUDA_SOFTCAP_TARGETS_CUH_
#define KERNELS_CUDA_SOFTCAP_TARGETS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/softcap_rows.cuh"
#include "kernels/ops/head.h"

namespace kernels::cuda {

constexpr int kGradThreads = 1024;  // all of a multiprocessor's registers, 64 a thread

// SoftcapRows, as narrow as the kernel's registers want it.
struct GradInput {
  const int32_t* targets;
  const float* weights;
  int rows, vocab, weight_count, target_count;
};

struct GradOutput {
  BF16* logits;  // the gradient in bf16, over the logits; or, with fp8, in g8
  uint8_t* g8;
  float* losses;
};

template <bool kFp8>
__device__ __forceinline__ void StoreGradient(const GradOutput& out, int64_t at, float gradient,
                                              float inv_grad_scale) {
  if constexpr (kFp8) {
    out.g8[at] =
        static_cast<uint8_t>(ToFp8x2<__NV_E5M2>(RoundF32(gradient) * inv_grad_scale, 0.0f));
  } else {
    out.logits[at] = Round(gradient);
  }
}

// The thread that keeps a class.
__device__ __forceinline__ int KeeperOf(int target) { return target / kVec % kGradThreads; }

// Load() and Take() come before the barrier within a row, Weighted() and Finish() after it.
//
// One target of weight 1.
class NextToken {
 public:
  struct Shared {};
  __device__ NextToken(const GradInput& rows, Shared&) : rows_(rows) {}

  __device__ __forceinline__ void Load(int row) { target_ = rows_.targets[row]; }
  // Before the next row's logits take the place of these.
  __device__ __forceinline__ void Take(const BF16* loaded, int, int) {
    valid_ = target_ >= 0 && target_ < rows_.vocab;
    owner_ = valid_ && KeeperOf(target_) == static_cast<int>(threadIdx.x);
    logit_ = owner_ ? ToF32(loaded[target_]) : 0.0f;
  }
  // `offset` is the log2 of what all gradients of a row have in common; with their weight, too.
  __device__ __forceinline__ float Weighted(float offset, int) const { return offset; }
  // Over what the same thread has just stored there.
  template <bool kFp8, typename Factors>
  __device__ __forceinline__ void Finish(int row, int, float sum, const Factors& k,
                                         const GradOutput& out) const {
    if (owner_) {
      const auto t = TargetOf(logit_, k);
      out.losses[row] = logf(sum) + t.distance;
      StoreGradient<kFp8>(out, int64_t{row} * rows_.vocab + target_,
                          TargetGradient(t, sum, 1.0f, 1.0f, k), k.inv_grad_scale);
    }
    if (!valid_ && threadIdx.x == 0) out.losses[row] = NAN;
  }

 private:
  const GradInput& rows_;
  int target_;
  bool valid_, owner_;
  float logit_;
};

// Up to kMaxLossWeights weighted targets. A few threads fetch them, one row ahead, for all.
class NextTokens {
 public:
  // The first index of an array [2][..] is the row's parity.
  struct Shared {
    // The thread that takes target n; -1 if the row has no such target.
    alignas(16) int owner[2][kMaxLossWeights];
    int target[2][kMaxLossWeights];  // -1: outside the vocabulary
    float logit[2][kMaxLossWeights];
    float weight[kMaxLossWeights];
    float sum[kMaxLossWeights + 1];  // of the first n weights
    float log2_sum[kMaxLossWeights + 1];
  };
  __device__ NextTokens(const GradInput& rows, Shared& shared) : rows_(rows), shared_(shared) {
    if (threadIdx.x == 0) {
      float sum = 0;
      for (int n = 0; n <= rows.weight_count; ++n) {
        shared.sum[n] = sum;
        shared.log2_sum[n] = log2f(sum);
        if (n == rows.weight_count) break;
        shared.weight[n] = rows.weights == nullptr ? 1.0f : rows.weights[n];
        sum += shared.weight[n];
      }
    }
    Fetch(blockIdx.x, 0);
    __syncthreads();
  }

  __device__ __forceinline__ void Load(int) {}
  __device__ __forceinline__ void Take(const BF16* loaded, int row, int parity) {
    static_assert(kMaxLossWeights == 4);
    const int4 owner = *reinterpret_cast<const int4*>(shared_.owner[parity]);
    const int thread = threadIdx.x;
    owned_ = 0;
    if (owner.x == thread || owner.y == thread || owner.z == thread || owner.w == thread) {
#pragma unroll 1
      for (int n = 0; n < kMaxLossWeights; ++n) {
        if (shared_.owner[parity][n] != thread) continue;
        const int target = shared_.target[parity][n];
        shared_.logit[parity][n] = target < 0 ? NAN : ToF32(loaded[target]);
        if (target >= 0) owned_ |= 1 << n;
      }
    }
    // All threads have read the last row's owners and targets: they have passed its barrier.
    Fetch(row + static_cast<int>(gridDim.x), parity ^ 1);
  }
  __device__ __forceinline__ float Weighted(float offset, int row) const {
    return offset + shared_.log2_sum[Count(row)];
  }
  // The targets are read again, by a few threads, rather than kept in registers by all.
  template <bool kFp8, typename Factors>
  __device__ __forceinline__ void Finish(int row, int parity, float sum, const Factors& k,
                                         const GradOutput& out) const {
    const bool last = threadIdx.x == kGradThreads - 1;  // it has the fewest logits
    if (owned_ == 0 && !last) return;
    const int count = Count(row);
    const int32_t* const targets = rows_.targets + row;
    const float log_sum = logf(sum);
    float loss = 0;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const auto t = TargetOf(shared_.logit[parity][n], k);
      loss += shared_.weight[n] * (log_sum + t.distance);
      if ((owned_ >> n & 1) == 0) continue;
      float weight = 0;  // where targets repeat, the same number is stored for each
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        if (targets[j] == targets[n]) weight += shared_.weight[j];
      }
      StoreGradient<kFp8>(out, int64_t{row} * rows_.vocab + targets[n],
                          TargetGradient(t, sum, shared_.sum[count], weight, k), k.inv_grad_scale);
    }
    if (last) out.losses[row] = loss;
  }

 private:
  // By the last threads, which have the fewest logits. Past the slot's end there are no targets.
  __device__ __forceinline__ void Fetch(int row, int parity) {
    const int n = kGradThreads - 1 - static_cast<int>(threadIdx.x);
    if (n >= kMaxLossWeights) return;
    int owner = -1, target = -1;
    if (n < Count(row)) {
      target = rows_.targets[row + n];
      if (target < 0 || target >= rows_.vocab) target = -1;
      owner = target < 0 ? 0 : KeeperOf(target);
    }
    shared_.owner[parity][n] = owner;
    shared_.target[parity][n] = target;
  }
  // The slot's end cuts targets off.
  __device__ __forceinline__ int Count(int row) const {
    return min(rows_.target_count - row, rows_.weight_count);
  }

  const GradInput& rows_;
  Shared& shared_;
  uint32_t owned_;  // bit n: this thread keeps target n
};

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SOFTCAP_TARGETS_CUH_
