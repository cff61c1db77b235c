// What Gpt does for models with banks beside the passes themselves.
#include "kernels/ops/elementwise.h"
#include "kernels/ops/weight.h"
#include "model/gpt.h"
#include "third_party/absl_compat/check.h"

namespace model {

using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

namespace {

// One attention layer's two parts that have a factor each: the rows of Q, K, V, and those of O.
struct Part {
  int factor;         // its place among the scalars
  int64_t row, rows;  // of the bank, as [all layers' 4 D, D]
};

std::vector<Part> Parts(const GptConfig& config) {
  std::vector<Part> parts;
  int64_t row = 0;
  for (int layer : AttentionLayers(config)) {
    const int factor = WeightFactor(config, layer);
    parts.push_back({factor, row, 3 * config.dim});
    parts.push_back({factor + 1, row + 3 * config.dim, config.dim});
    row += 4 * config.dim;
  }
  return parts;
}

}  // namespace

void Gpt::PrepareBanks(const std::vector<Parameter>& parameters, Queue& queue) {
  CHECK_EQ(parameters.size(), ParameterSpecs(config_).size()) << "weights of another model?";
  const Tensor scalars = parameters[layout_.scalars].value;
  const Tensor x0_lambdas = parameters[layout_.x0_lambdas].value;
  const Tensor table = banks_.scalars.value;
  kernels::Copy(scalars, table.Slice(0, scalars.size()), queue);
  kernels::Copy(x0_lambdas, table.Slice(scalars.size(), x0_lambdas.size()), queue);
  const Tensor bank = parameters[layout_.attn_bank].value.Reshape({-1, config_.dim});
  const int64_t layer_rows = 4 * config_.dim;
  for (const Part& part : Parts(config_)) {
    const Tensor scaled = banks_.scaled[part.row / layer_rows];
    kernels::ScaleWeight(bank.Slice(part.row, part.rows), scalars, part.factor,
                         scaled.Slice(part.row % layer_rows, part.rows), queue);
  }
}

void Gpt::AddLambdaGradients(const std::vector<Parameter>& parameters, int64_t leaf,
                             Queue& queue) const {
  const Tensor scalars = parameters[layout_.scalars].grad.At(leaf);
  const Tensor x0_lambdas = parameters[layout_.x0_lambdas].grad.At(leaf);
  const Tensor table = banks_.scalars.grad.At(0);
  kernels::Add(table.Slice(0, scalars.size()), scalars, queue);
  kernels::Add(table.Slice(scalars.size(), x0_lambdas.size()), x0_lambdas, queue);
}

void Gpt::FinishGradients(const std::vector<Parameter>& parameters, Queue& queue) const {
  if (!has_banks()) return;
  const Parameter& bank = parameters[layout_.attn_bank];
  const Parameter& scalars = parameters[layout_.scalars];
  const Tensor weights = bank.value.Reshape({-1, config_.dim});
  for (int64_t leaf = 0; leaf < bank.grad.dim(0); ++leaf) {
    const Tensor gradients = bank.grad.At(leaf).Reshape({-1, config_.dim});
    for (const Part& part : Parts(config_)) {
      kernels::ScaleWeightGrad(weights.Slice(part.row, part.rows), scalars.value, part.factor,
                               gradients.Slice(part.row, part.rows), scalars.grad.At(leaf), queue);
    }
  }
}

}  // namespace model
