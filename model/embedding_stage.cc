#include "model/embedding_stage.h"

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"

namespace model {
namespace {

using kernels::DType;
using kernels::Queue;
using kernels::Tensor;

kernels::EmbedSmearNormArgs Args(const GptConfig& config, const PassInput& input,
                                 const PassWeights& weights, Tensor x0, Tensor inv_rms) {
  kernels::EmbedSmearNormArgs args;
  args.tokens = input.tokens;
  args.table = weights.embed.value;
  if (weights.smear_gate.value) {
    args.smear_w = weights.smear_gate.value;
    args.scalars = weights.scalars.value;
    args.smear_lambda = SmearLambda(config);
  } else {
    args.smear_lambda = -1;
  }
  args.x0 = x0;
  args.inv_rms = inv_rms;
  return args;
}

}  // namespace

void EmbeddingStage::Plan(const PassShape& shape, const Queue& queue, PassMemory& memory) {
  const std::vector<int64_t> stream = {shape.slots, shape.slot_tokens, config_.dim};
  memory.Add(&x0_, "x0", DType::kBF16, stream);
  memory.Add(&inv_rms_, "x0 inv_rms", DType::kF32, {shape.slots, shape.slot_tokens});
  if (!shape.train) return;
  memory.Add(&dx0_, "dx0", DType::kBF16, stream);
  memory.Add(&de_, "de", DType::kBF16, stream);
  dvalue_rows_.resize(config_.value_embeddings);
  for (size_t k = 0; k < dvalue_rows_.size(); ++k) {
    memory.Add(&dvalue_rows_[k], absl::StrCat("dvalue_rows ", k), DType::kBF16, stream);
  }
  const int64_t bytes = kernels::EmbeddingGradWorkspaceBytes(
      shape.slots, shape.slot_tokens, EmbeddingRows(config_), config_.dim, queue);
  if (bytes > 0) memory.Add(&workspace_, "embedding workspace", DType::kF32, {(bytes + 3) / 4});
}

void EmbeddingStage::Forward(const PassInput& input, const PassWeights& weights,
                             Queue& queue) const {
  kernels::EmbedSmearNorm(Args(config_, input, weights, x0_, inv_rms_), queue);
}

void EmbeddingStage::ZeroGradients(Queue& queue) const {
  kernels::FillZero(dx0_, queue);
  for (const Tensor& rows : dvalue_rows_) kernels::FillZero(rows, queue);
}

void EmbeddingStage::Backward(const PassInput& input, const PassWeights& weights,
                              Queue& queue) const {
  const int64_t vocab = EmbeddingRows(config_), dim = config_.dim;
  kernels::EmbedSmearNormGrad(Args(config_, input, weights, x0_, inv_rms_), dx0_, de_,
                              weights.smear_gate.grad,
                              weights.smear_gate.value ? weights.scalars.grad : Tensor(), queue);
  kernels::EmbeddingGrad(input.tokens, de_, weights.embed.grad.Reshape({-1, vocab, dim}),
                         workspace_, queue);
  for (size_t k = 0; k < dvalue_rows_.size(); ++k) {
    kernels::EmbeddingGrad(input.tokens, dvalue_rows_[k],
                           weights.value_embeds[k].grad.Reshape({-1, vocab, dim}), workspace_,
                           queue);
  }
}

}  // namespace model
