// One row of logits is read once and stays on the multiprocessor until its gradient is written:
// 2 bytes read and 1 (e5m2) or 2 (bf16) written per logit, 1.73 ms for 49,152 x 50,304 in fp8 at
// 4.29 TB/s. What limits the kernel is the special function unit (exponentials and reciprocals,
// 16 a clock and multiprocessor) together with the issue of instructions: 3 of the former and
// some 28 instructions per logit.
//
//   pass 1  c = 1 / (1 + 2^(-logit log2(e) / temperature))    1 exponential, 1/4 reciprocal
//           sum += 2^((c - 1) cap log2(e))                    3/4
//   pass 2  g = p cap / temperature c (1 - c)                 1
//
// Between the passes c is kept in registers as a 16-bit fixed-point number, 1 = 65535. Its error
// of 7.6e-6 moves z by at most 2.3e-4 at a cap of 30, hence p by 2.3e-4 of itself, and c (1 - c)
// by less than a bf16 rounding for shifted logits from -35 to 35; logits so far out that c becomes
// 0 or 1 get the gradient 0. The target's gradient and the loss are computed from the logit itself.
//
// A shift of the logits is an addend of a product. Several weighted targets change no pass: p is
// multiplied by the sum of the row's weights, whose log2 joins the exponent that a row has in
// common, and a few threads write the targets' gradients.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/softcap_loss.h"
#include "kernels/cuda/softcap_rows.cuh"
#include "kernels/ops/head.h"

namespace kernels::cuda {
namespace {

constexpr int kGradThreads = 1024;  // all of a multiprocessor's registers, 64 a thread
constexpr int kLossThreads = 256;

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
                                              const Factors& k) {
  if constexpr (kFp8) {
    out.g8[at] =
        static_cast<uint8_t>(ToFp8x2<__NV_E5M2>(RoundF32(gradient) * k.inv_grad_scale, 0.0f));
  } else {
    out.logits[at] = Round(gradient);
  }
}

// The thread that keeps a class.
__device__ __forceinline__ int KeeperOf(int target) { return target / kVec % kGradThreads; }

// The targets of a row, seen from one thread. Load() and Take() come before the barrier within a
// row, Weighted() and Finish() after it.
//
// One target of weight 1, and logits without a shift.
class NextToken {
 public:
  static constexpr bool kShifted = false;
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
  template <bool kFp8>
  __device__ __forceinline__ void Finish(int row, int, float sum, const Factors& k,
                                         const GradOutput& out) const {
    if (owner_) {
      const Target t = TargetOf(logit_, k);
      out.losses[row] = logf(sum) + t.distance;
      StoreGradient<kFp8>(out, int64_t{row} * rows_.vocab + target_,
                          TargetGradient(t, sum, 1.0f, 1.0f, k), k);
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
  static constexpr bool kShifted = true;
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
  template <bool kFp8>
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
      const Target t = TargetOf(shared_.logit[parity][n], k);
      loss += shared_.weight[n] * (log_sum + t.distance);
      if ((owned_ >> n & 1) == 0) continue;
      float weight = 0;  // where targets repeat, the same number is stored for each
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        if (targets[j] == targets[n]) weight += shared_.weight[j];
      }
      StoreGradient<kFp8>(out, int64_t{row} * rows_.vocab + targets[n],
                          TargetGradient(t, sum, shared_.sum[count], weight, k), k);
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

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// Waits for this thread's own copies.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A block per row, row after row. Each thread has the same kVectors places of 8 logits in all
// rows, and only it touches their shared memory; as soon as it has taken a row's logits from
// there, it starts the copy of the next row's, which then has all of pass 2 to arrive.
template <typename Targets, int kVectors, bool kFp8>
__global__ void __launch_bounds__(kGradThreads, 1)
    LossGradKernel(const __grid_constant__ GradInput rows, Factors k, GradOutput output) {
  extern __shared__ uint4 loaded[];  // [vocab / 8]
  // Two, so that a row's sums may be written while the last row's are still read.
  __shared__ float warp_sums[2][kGradThreads / kWarp];
  __shared__ typename Targets::Shared shared;
  Targets targets(rows, shared);
  const int thread = threadIdx.x;
  uint4* const mine = loaded + thread;           // and every kGradThreads further
  const int left = rows.vocab / kVec - thread;   // vectors from mine to the row's end
  const int64_t first = int64_t{thread} * kVec;  // of the thread's places in a row

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t from = int64_t{blockIdx.x} * rows.vocab + first;
    if (i * kGradThreads < left) {
      CopyAsync16(mine + i * kGradThreads, output.logits + from + i * kGradThreads * kVec);
    }
  }
  int parity = 0;
  for (int row = blockIdx.x; row < rows.rows; row += gridDim.x, parity ^= 1) {
    targets.Load(row);
    WaitForCopies();
    targets.Take(reinterpret_cast<const BF16*>(loaded), row, parity);

    const int next_row = row + static_cast<int>(gridDim.x);
    const BF16* next = output.logits + int64_t{next_row} * rows.vocab + first;
    // Else the compiler computes it again at each of its uses.
    asm volatile("" : "+l"(next));
    uint4 kept[kVectors];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kGradThreads < left) {
        float c[8];
        Sigmoids<Targets::kShifted>(mine[i * kGradThreads], k, c);
        kept[i] = Keep(c);
        sum += SumExp(c, k.cap_log2);
        if (next_row < rows.rows) {
          CopyAsync16(mine + i * kGradThreads, next + i * kGradThreads * kVec);
        }
      }
    }
    sum = WarpSum(sum);
    if (thread % kWarp == 0) warp_sums[parity][thread / kWarp] = sum;
    __syncthreads();
    static_assert(kGradThreads == kWarp * kWarp);
    sum = WarpSum(warp_sums[parity][thread % kWarp]);

    const float offset = targets.Weighted(k.slope_log2 - k.cap_log2 - __log2f(sum), row);
    const int64_t to = int64_t{row} * rows.vocab + first;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kGradThreads < left) {
        const uint4 g = Gradients(kept[i], k.kept_log2, offset);
        if constexpr (kFp8) {
          *reinterpret_cast<uint2*>(output.g8 + to + i * kGradThreads * kVec) =
              ToE5M2(g, k.inv_grad_scale);
        } else {
          *reinterpret_cast<uint4*>(output.logits + to + i * kGradThreads * kVec) = g;
        }
      }
    }
    targets.template Finish<kFp8>(row, parity, sum, k, output);
  }
}

// A block per row.
__global__ void __launch_bounds__(kLossThreads)
    LossKernel(const BF16* __restrict__ logits, const int32_t* __restrict__ targets, int vocab,
               Factors k, float* __restrict__ losses) {
  __shared__ float warp_sums[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  logits += row * vocab;
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x * kVec; i < vocab; i += kLossThreads * kVec) {
    float c[8];
    Sigmoids<true>(__ldcs(reinterpret_cast<const uint4*>(logits + i)), k, c);
    sum += SumExp(c, k.cap_log2);
  }
  sum = BlockSum<kLossThreads>(sum, warp_sums);
  if (threadIdx.x != 0) return;
  const int target = targets[row];
  const bool valid = target >= 0 && target < vocab;
  losses[row] = valid ? logf(sum) + TargetOf(ToF32(logits[target]), k).distance : NAN;
}

__global__ void __launch_bounds__(kLossThreads)
    SoftcapKernel(const BF16* __restrict__ logits, int64_t vectors, Factors k,
                  float* __restrict__ z) {
  const int64_t i = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  if (i >= vectors) return;
  float c[8];
  Sigmoids<true>(reinterpret_cast<const uint4*>(logits)[i], k, c);
#pragma unroll
  for (int j = 0; j < 8; ++j) z[i * kVec + j] = k.softcap * c[j];
}

template <typename Targets, int kVectors, bool kFp8>
void LaunchGrad(const SoftcapRows& rows, const Factors& factors, const GradOutput& output,
                CudaQueue& queue) {
  const auto kernel = LossGradKernel<Targets, kVectors, kFp8>;
  const int shared_bytes = static_cast<int>(rows.vocab * int64_t{sizeof(BF16)});
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows.rows, queue.processors()));
  const GradInput input = {.targets = rows.targets,
                           .weights = rows.weights,
                           .rows = static_cast<int>(rows.rows),
                           .vocab = static_cast<int>(rows.vocab),
                           .weight_count = rows.weights == nullptr ? 1 : rows.weight_count,
                           .target_count = static_cast<int>(rows.target_count)};
  kernel<<<blocks, kGradThreads, shared_bytes, queue.stream()>>>(input, factors, output);
  CheckLaunch("SoftcapLossGrad");
}

template <typename Targets, bool kFp8>
void GradOf(const SoftcapRows& rows, const Factors& factors, const GradOutput& output,
            CudaQueue& queue) {
  const int64_t vectors = CeilDiv(rows.vocab, kVec * kGradThreads);
  if (vectors <= 2) {
    LaunchGrad<Targets, 2, kFp8>(rows, factors, output, queue);
  } else if (vectors <= 7) {  // 50,304 classes
    LaunchGrad<Targets, 7, kFp8>(rows, factors, output, queue);
  } else {
    LaunchGrad<Targets, 8, kFp8>(rows, factors, output, queue);
  }
}

template <bool kFp8>
void Grad(const SoftcapRows& rows, float grad_scale, const GradOutput& output, CudaQueue& queue) {
  const Factors factors = MakeFactors(rows.curve, grad_scale);
  if (rows.weights == nullptr && rows.curve.shift == 0) {
    GradOf<NextToken, kFp8>(rows, factors, output, queue);
  } else {
    GradOf<NextTokens, kFp8>(rows, factors, output, queue);
  }
}

}  // namespace

void SoftcapLoss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  const Factors factors = MakeFactors(rows.curve, 1.0f);
  LossKernel<<<static_cast<unsigned>(rows.rows), kLossThreads, 0, queue.stream()>>>(
      logits, rows.targets, static_cast<int>(rows.vocab), factors, losses);
  CheckLaunch("SoftcapLoss");
}

void SoftcapLossGrad(BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  Grad<false>(rows, 1.0f, {.logits = logits, .g8 = nullptr, .losses = losses}, queue);
}

void SoftcapLossGradFp8(const BF16* logits, const SoftcapRows& rows, float grad_scale,
                        float* losses, uint8_t* g8, CudaQueue& queue) {
  // Only the bf16 kernel writes to the logits.
  Grad<true>(rows, grad_scale, {.logits = const_cast<BF16*>(logits), .g8 = g8, .losses = losses},
             queue);
}

void Softcap(const BF16* logits, int64_t size, const SoftcapCurve& curve, float* z,
             CudaQueue& queue) {
  const Factors factors = MakeFactors(curve, 1.0f);
  const int64_t vectors = size / kVec;
  const auto blocks = static_cast<unsigned>(CeilDiv(vectors, kLossThreads));
  SoftcapKernel<<<blocks, kLossThreads, 0, queue.stream()>>>(logits, vectors, factors, z);
  CheckLaunch("Softcap");
}

}  // namespace kernels::cuda
