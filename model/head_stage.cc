#include "model/head_stage.h"

#include "kernels/ops/elementwise.h"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

namespace model {

using kernels::DType;
using kernels::Queue;
using kernels::Tensor;

void HeadStage::Plan(const PassShape& shape, const Queue& queue, PassMemory& memory) {
  const int64_t slots = shape.slots, tokens = shape.slot_tokens;
  memory.Add(&hidden_, "hidden", DType::kBF16, {slots, tokens, config_.dim});
  memory.Add(&inv_rms_, "hidden inv_rms", DType::kF32, {slots, tokens});
  const int64_t bytes =
      kernels::HeadWorkspaceBytes(slots, tokens, config_.vocab_size, config_.dim, queue);
  if (bytes > 0) memory.Add(&workspace_, "head workspace", DType::kF32, {(bytes + 3) / 4});
}

kernels::HeadArgs HeadStage::Args(const Weight& lm_head) const {
  kernels::HeadArgs args;
  args.x = hidden_;
  args.w = lm_head.value;
  args.w_transposed = config_.head_layout == HeadLayout::kDimVocab;
  args.softcap_kind = config_.softcap_kind;
  args.softcap = config_.softcap;
  args.softcap_temperature = config_.softcap_temperature;
  args.softcap_shift = config_.softcap_shift;
  args.workspace = workspace_;
  return args;
}

void HeadStage::Normalize(Tensor x, const Backout& backout, Queue& queue) const {
  if (!backout.from) return kernels::RmsNorm(x, hidden_, inv_rms_, queue);
  kernels::MixNorm({.x = x,
                    .x0 = backout.from,
                    .scalars = backout.scalars.value,
                    .which = backout.which,
                    .mixed = backout.left,
                    .u = hidden_,
                    .inv_rms = inv_rms_},
                   queue);
}

void HeadStage::Loss(const PassInput& input, const Weight& lm_head, Tensor losses,
                     Queue& queue) const {
  kernels::HeadArgs args = Args(lm_head);
  args.targets = input.targets;
  kernels::HeadLoss(args, losses, queue);
}

void HeadStage::LossGrad(const PassInput& input, const Weight& lm_head, Tensor x,
                         const Backout& backout, Tensor losses, Tensor dx, Queue& queue) const {
  kernels::HeadArgs args = Args(lm_head);
  args.targets = input.targets;
  args.precision = TrainingHeadPrecision(config_);
  args.loss_weights = input.loss_weights;
  const Tensor dw = lm_head.grad.Reshape({-1, lm_head.value.dim(0), lm_head.value.dim(1)});
  kernels::HeadLossGrad(args, losses, dx, dw, queue);
  if (!backout.from) {
    return kernels::RmsNormGrad({.dy = dx, .x = x, .inv_rms = inv_rms_, .dx = dx}, queue);
  }
  kernels::MixNormGradArgs grad;
  grad.du = dx;
  grad.inv_rms = inv_rms_;
  grad.x = x;
  grad.x0 = backout.from;
  grad.scalars = backout.scalars.value;
  grad.which = backout.which;
  grad.dx = dx;
  grad.dx0 = backout.dfrom;
  grad.dscalars = backout.scalars.grad;
  kernels::FillZero(backout.dfrom, queue);  // the op adds to it
  kernels::MixNormGrad(grad, queue);
}

void HeadStage::Logits(const Weight& lm_head, int64_t slot, int64_t position, Tensor logits,
                       Queue& queue) const {
  CHECK(position >= 0 && position < hidden_.dim(1)) << position;
  kernels::HeadArgs args = Args(lm_head);
  args.x = hidden_.At(slot).Slice(position, 1).Reshape({1, 1, config_.dim});
  kernels::HeadLogits(args, logits, queue);
}

}  // namespace model
