// Soft cap, cross entropy and its gradient, from rows of bf16 logits. See kernels/ops/head.h for
// the formulas.
#ifndef KERNELS_CUDA_SOFTCAP_LOSS_H_
#define KERNELS_CUDA_SOFTCAP_LOSS_H_

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"

namespace kernels::cuda {

struct SoftcapRows {
  const int32_t* targets = nullptr;  // [rows]; the loss of one outside the vocabulary is NaN
  int64_t rows = 0;
  int64_t vocab = 0;  // a multiple of 16
  float softcap = 0;  // at most kMaxSoftcap
  float temperature = 0;
};

// exp(z - softcap) is summed with no regard to the row's largest z: up to this cap each term is a
// normal f32 number.
constexpr float kMaxSoftcap = 60.0f;
// Of the gradient: what a block of threads can hold.
constexpr int64_t kMaxGradVocab = 65536;

// logits [rows, vocab]   losses [rows]
void SoftcapLoss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue);

// The logits' gradient, rounded to bf16, over the logits.
void SoftcapLossGrad(BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue);

// g8 [rows, vocab] = e5m2(gradient rounded to bf16 * (1 / grad_scale)), saturating.
void SoftcapLossGradFp8(const BF16* logits, const SoftcapRows& rows, float grad_scale,
                        float* losses, uint8_t* g8, CudaQueue& queue);

// z [size] = softcap * sigmoid(logits / temperature); size is a multiple of 8.
void Softcap(const BF16* logits, int64_t size, float softcap, float temperature, float* z,
             CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SOFTCAP_LOSS_H_
