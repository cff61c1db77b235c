// Backout, final norm, output head, soft cap and loss.
#ifndef MODEL_HEAD_STAGE_H_
#define MODEL_HEAD_STAGE_H_

#include "kernels/ops/head.h"
#include "kernels/ops/norm.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "model/pass.h"

namespace model {

// An earlier layer's output, taken out of the stream before the final norm: x - lambda from. All
// tensors are empty in a model without it.
struct Backout {
  kernels::Tensor from;   // bf16 [slots, T, D]
  kernels::Tensor left;   // bf16 [slots, T, D], what Normalize leaves of the stream
  kernels::Tensor dfrom;  // bf16 [slots, T, D], written by backward
  Weight scalars;         // all of the model's
  kernels::MixScalars which;
};

class HeadStage {
 public:
  explicit HeadStage(const GptConfig& config) : config_(config) {}

  void Plan(const PassShape& shape, const kernels::Queue& queue, PassMemory& memory);

  // hidden = rms(x - lambda from), or rms(x).  x  bf16 [slots, T, D]
  void Normalize(kernels::Tensor x, const Backout& backout, kernels::Queue& queue) const;
  kernels::Tensor hidden() const { return hidden_; }  // bf16 [slots, T, D]

  // losses  f32 [slots, T], by the bf16 head.
  void Loss(const PassInput& input, const Weight& lm_head, kernels::Tensor losses,
            kernels::Queue& queue) const;

  // losses by training's head; adds to the gradients of lm_head and of the backout lambda, and
  // writes dx, bf16 [slots, T, D], and backout.dfrom, the gradients of the sum of all losses by
  // Normalize's x and backout.from, which are as they were then.
  void LossGrad(const PassInput& input, const Weight& lm_head, kernels::Tensor x,
                const Backout& backout, kernels::Tensor losses, kernels::Tensor dx,
                kernels::Queue& queue) const;

  // logits  f32 [1, 1, V], soft cap applied, of one position.
  void Logits(const Weight& lm_head, int64_t slot, int64_t position, kernels::Tensor logits,
              kernels::Queue& queue) const;

 private:
  kernels::HeadArgs Args(const Weight& lm_head) const;

  const GptConfig& config_;
  kernels::Tensor hidden_;     // bf16 [slots, T, D]
  kernels::Tensor inv_rms_;    // f32 [slots, T]
  kernels::Tensor workspace_;  // f32
};

}  // namespace model

#endif  // MODEL_HEAD_STAGE_H_
