// Soft cap, cross entropy and its gradient, from rows of bf16 logits. See kernels/ops/head.h for
// the formulas.
#ifndef KERNELS_CUDA_SOFTCAP_LOSS_H_
#define KERNELS_CUDA_SOFTCAP_LOSS_H_

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"
#include "kernels/ops/head.h"

namespace kernels::cuda {

// The soft cap of HeadArgs.
struct SoftcapCurve {
  SoftCap kind = SoftCap::kSigmoid;
  float cap = 0;  // at most kMaxSoftcap
  float temperature = 0;
  float shift = 0;
};

// Rows of one slot.
struct SoftcapRows {
  // From the first row on to the end of the slot, behind the last row, too. A row with a target
  // outside the vocabulary has the loss NaN.
  const int32_t* targets = nullptr;
  int64_t target_count = 0;
  int64_t rows = 0;
  int64_t vocab = 0;  // a multiple of 16
  SoftcapCurve curve;
  // For the gradient: of the terms of a row's loss, f32 [weight_count] on the device, at most
  // kMaxLossWeights. Without any the row's own target has the weight 1.
  const float* weights = nullptr;
  int weight_count = 0;
};

// exp(z - cap), with kIsru exp(z), is summed with no regard to the row's largest z: up to this cap
// each term is a normal f32 number.
constexpr float kMaxSoftcap = 60.0f;
// Of the gradient: what a block of threads can hold.
constexpr int64_t kMaxGradVocab = 65536;

// logits [rows, vocab]   losses [rows]
void SoftcapLoss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue);

// The logits' gradient, rounded to bf16, over the logits.
void SoftcapLossGrad(BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue);

// g8 [rows, vocab] = e5m2(gradient * (1 / grad_scale)), saturating. On the way there is one
// rounding to bf16, as of the original's gradient: of a target's gradient itself, of another
// class's before (sigmoid) or after (inverse square root) the row's factor is on it.
void SoftcapLossGradFp8(const BF16* logits, const SoftcapRows& rows, float grad_scale,
                        float* losses, uint8_t* g8, CudaQueue& queue);

// z [size]; size is a multiple of 8.
void Softcap(const BF16* logits, int64_t size, const SoftcapCurve& curve, float* z,
             CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SOFTCAP_LOSS_H_
