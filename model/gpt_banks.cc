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

// Rows of one attention layer's matrices that lie in one bank and have one factor.
struct Part {
  int bank;           // its parameter, seen as [rows, D]
  int64_t bank_row;   // of them the first
  int64_t layer;      // among those with attention
  int64_t row, rows;  // of the layer's Q, K, V, O [4 D, D]
  int factor;         // its place among the scalars; -1: none
};

std::vector<Part> Parts(const GptConfig& config, const ParameterLayout& layout) {
  std::vector<Part> parts;
  const int64_t dim = config.dim;
  int64_t at = 0;
  for (int layer : AttentionLayers(config)) {
    const int factor = WeightFactor(config, layer);
    const int o_factor = factor < 0 ? -1 : factor + 1;
    if (config.split_attention_banks) {
      parts.push_back({layout.qk_bank, 2 * at * dim, at, 0, 2 * dim, factor});
      parts.push_back({layout.vo_bank, 2 * at * dim, at, 2 * dim, dim, factor});
      parts.push_back({layout.vo_bank, (2 * at + 1) * dim, at, 3 * dim, dim, o_factor});
    } else {
      parts.push_back({layout.attn_bank, 4 * at * dim, at, 0, 3 * dim, factor});
      parts.push_back({layout.attn_bank, (4 * at + 3) * dim, at, 3 * dim, dim, o_factor});
    }
    ++at;
  }
  return parts;
}

// The part's rows of its bank, or of the bank's gradient.
Tensor RowsOf(const Part& part, const Tensor& bank, int64_t dim) {
  return bank.Reshape({-1, dim}).Slice(part.bank_row, part.rows);
}

}  // namespace

void Gpt::PrepareBanks(const std::vector<Parameter>& parameters, Queue& queue) {
  CHECK_EQ(parameters.size(), ParameterSpecs(config_).size()) << "weights of another model?";
  const Tensor scalars = parameters[layout_.scalars].value;
  const Tensor x0_lambdas = parameters[layout_.x0_lambdas].value;
  const Tensor table = banks_.scalars.value;
  kernels::Copy(scalars, table.Slice(0, scalars.size()), queue);
  kernels::Copy(x0_lambdas, table.Slice(scalars.size(), x0_lambdas.size()), queue);
  for (const Part& part : Parts(config_, layout_)) {
    const Tensor rows = RowsOf(part, parameters[part.bank].value, config_.dim);
    const Tensor read = banks_.scaled[part.layer].Slice(part.row, part.rows);
    if (part.factor < 0) {
      kernels::Copy(rows, read, queue);
    } else {
      kernels::ScaleWeight(rows, scalars, part.factor, read, queue);
    }
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
  if (!config_.attention_factors) return;
  const Parameter& scalars = parameters[layout_.scalars];
  for (int64_t leaf = 0; leaf < scalars.grad.dim(0); ++leaf) {
    for (const Part& part : Parts(config_, layout_)) {
      const Parameter& bank = parameters[part.bank];
      kernels::ScaleWeightGrad(RowsOf(part, bank.value, config_.dim), scalars.value, part.factor,
                               RowsOf(part, bank.grad.At(leaf), config_.dim), scalars.grad.At(leaf),
                               queue);
    }
  }
}

}  // namespace model
