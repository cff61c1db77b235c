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
// In fp8 pass 1 makes of a logit all of its gradient but for the row's factor, and pass 2 is a
// product:
//
//   pass 1  as above; kept = 2^((c - 1) cap log2(e)) c (1 - c), rounded to bf16
//   pass 2  g8 = kept cap / temperature / sum / grad_scale
//
// For bf16 gradients, which would be rounded to the same width twice, c itself is kept as a 16-bit
// fixed-point number, 1 = 65535. Its error of 7.6e-6 moves z by at most 2.3e-4 at a cap of 30,
// hence p by 2.3e-4 of itself, and c (1 - c) by less than a bf16 rounding for shifted logits from
// -35 to 35; logits so far out that c becomes 0 or 1 get the gradient 0. The target's gradient and
// the loss are computed from the logit itself.
//
// The inverse square root unit keeps the bf16 logits themselves, and takes the root again:
//
//   pass 1  s = logit / sqrt(logit^2 + cap^2)                 1 root
//           sum += 2^(s cap log2(e))                          1/2 exponential
//   pass 2  g = p (cap / sqrt(logit^2 + cap^2))^3             1 root, 1 exponential
//
// A shift of the logits is an addend of a product. Several weighted targets change no pass: p is
// multiplied by the sum of the row's weights, whose log2 joins the exponent that a row has in
// common, and a few threads write the targets' gradients.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/softcap_isru.cuh"
#include "kernels/cuda/softcap_loss.h"
#include "kernels/cuda/softcap_rows.cuh"
#include "kernels/cuda/softcap_targets.cuh"
#include "kernels/ops/head.h"

namespace kernels::cuda {
namespace {

constexpr int kLossThreads = 256;

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// Waits for this thread's own copies.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A block per row, row after row. Each thread has the same kVectors places of 8 logits in all
// rows, and only it touches their shared memory; as soon as it has taken a row's logits from
// there, it starts the copy of the next row's, which then has all of pass 2 to arrive.
template <typename Curve, typename Targets, int kVectors, bool kFp8>
__global__ void __launch_bounds__(kGradThreads, 1)
    LossGradKernel(const __grid_constant__ GradInput rows, typename Curve::Factors k,
                   GradOutput output) {
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
        kept[i] = Curve::Sum(mine[i * kGradThreads], k, sum);
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

    const float common = Curve::Common(targets.Weighted(Curve::Offset(sum, k), row), k);
    const int64_t to = int64_t{row} * rows.vocab + first;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kGradThreads < left) {
        if constexpr (kFp8) {
          *reinterpret_cast<uint2*>(output.g8 + to + i * kGradThreads * kVec) =
              Curve::GradientsE5M2(kept[i], k, common);
        } else {
          *reinterpret_cast<uint4*>(output.logits + to + i * kGradThreads * kVec) =
              Curve::Gradients(kept[i], k, common);
        }
      }
    }
    targets.template Finish<kFp8>(row, parity, sum, k, output);
  }
}

// A block per row.
template <typename Curve>
__global__ void __launch_bounds__(kLossThreads)
    LossKernel(const BF16* __restrict__ logits, const int32_t* __restrict__ targets, int vocab,
               typename Curve::Factors k, float* __restrict__ losses) {
  __shared__ float warp_sums[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  logits += row * vocab;
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x * kVec; i < vocab; i += kLossThreads * kVec) {
    Curve::Sum(__ldcs(reinterpret_cast<const uint4*>(logits + i)), k, sum);
  }
  sum = BlockSum<kLossThreads>(sum, warp_sums);
  if (threadIdx.x != 0) return;
  const int target = targets[row];
  const bool valid = target >= 0 && target < vocab;
  losses[row] = valid ? logf(sum) + TargetOf(ToF32(logits[target]), k).distance : NAN;
}

template <typename Curve>
__global__ void __launch_bounds__(kLossThreads)
    SoftcapKernel(const BF16* __restrict__ logits, int64_t vectors, typename Curve::Factors k,
                  float* __restrict__ z) {
  const int64_t i = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  if (i >= vectors) return;
  float values[8];
  Curve::Z(reinterpret_cast<const uint4*>(logits)[i], k, values);
#pragma unroll
  for (int j = 0; j < 8; ++j) z[i * kVec + j] = values[j];
}

template <typename Curve, typename Targets, int kVectors, bool kFp8>
void LaunchGrad(const SoftcapRows& rows, const typename Curve::Factors& factors,
                const GradOutput& output, CudaQueue& queue) {
  const auto kernel = LossGradKernel<Curve, Targets, kVectors, kFp8>;
  const int shared_bytes = static_cast<int>(rows.vocab * int64_t{sizeof(BF16)});
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows.rows, queue.sm_count()));
  const GradInput input = {.targets = rows.targets,
                           .weights = rows.weights,
                           .rows = static_cast<int>(rows.rows),
                           .vocab = static_cast<int>(rows.vocab),
                           .weight_count = rows.weights == nullptr ? 1 : rows.weight_count,
                           .target_count = static_cast<int>(rows.target_count)};
  kernel<<<blocks, kGradThreads, shared_bytes, queue.stream()>>>(input, factors, output);
  CheckLaunch("SoftcapLossGrad");
}

template <typename Curve, typename Targets, bool kFp8>
void GradOf(const SoftcapRows& rows, float grad_scale, const GradOutput& output, CudaQueue& queue) {
  const auto factors = Curve::MakeFactors(rows.curve, grad_scale);
  const int64_t vectors = CeilDiv(rows.vocab, kVec * kGradThreads);
  if (vectors <= 2) {
    LaunchGrad<Curve, Targets, 2, kFp8>(rows, factors, output, queue);
  } else if (vectors <= 7) {  // 50,304 classes
    LaunchGrad<Curve, Targets, 7, kFp8>(rows, factors, output, queue);
  } else {
    LaunchGrad<Curve, Targets, 8, kFp8>(rows, factors, output, queue);
  }
}

template <bool kFp8>
void Grad(const SoftcapRows& rows, float grad_scale, const GradOutput& output, CudaQueue& queue) {
  const bool weighted = rows.weights != nullptr;
  using Shifted = std::conditional_t<kFp8, SigmoidFp8Curve<true>, SigmoidCurve<true>>;
  using Plain = std::conditional_t<kFp8, SigmoidFp8Curve<false>, SigmoidCurve<false>>;
  if (rows.curve.kind == SoftCap::kIsru) {
    if (weighted) {
      GradOf<IsruCurve, NextTokens, kFp8>(rows, grad_scale, output, queue);
    } else {
      GradOf<IsruCurve, NextToken, kFp8>(rows, grad_scale, output, queue);
    }
  } else if (weighted || rows.curve.shift != 0) {
    GradOf<Shifted, NextTokens, kFp8>(rows, grad_scale, output, queue);
  } else {
    GradOf<Plain, NextToken, kFp8>(rows, grad_scale, output, queue);
  }
}

template <typename Curve>
void Loss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  const auto factors = Curve::MakeFactors(rows.curve, 1.0f);
  LossKernel<Curve><<<static_cast<unsigned>(rows.rows), kLossThreads, 0, queue.stream()>>>(
      logits, rows.targets, static_cast<int>(rows.vocab), factors, losses);
  CheckLaunch("SoftcapLoss");
}

template <typename Curve>
void Cap(const BF16* logits, int64_t size, const SoftcapCurve& curve, float* z, CudaQueue& queue) {
  const auto factors = Curve::MakeFactors(curve, 1.0f);
  const int64_t vectors = size / kVec;
  const auto blocks = static_cast<unsigned>(CeilDiv(vectors, kLossThreads));
  SoftcapKernel<Curve><<<blocks, kLossThreads, 0, queue.stream()>>>(logits, vectors, factors, z);
  CheckLaunch("Softcap");
}

}  // namespace

void SoftcapLoss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  if (rows.curve.kind == SoftCap::kIsru) {
    Loss<IsruCurve>(logits, rows, losses, queue);
  } else {
    Loss<SigmoidCurve<true>>(logits, rows, losses, queue);
  }
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
  if (curve.kind == SoftCap::kIsru) {
    Cap<IsruCurve>(logits, size, curve, z, queue);
  } else {
    Cap<SigmoidCurve<true>>(logits, size, curve, z, queue);
  }
}

}  // namespace kernels::cuda
