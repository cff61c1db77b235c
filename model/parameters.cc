#include "model/parameters.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace model {
namespace {

using kernels::DType;
using kernels::ParameterSpec;

// Builds specs and layout side by side, so that they cannot disagree.
struct Declaration {
  std::vector<ParameterSpec> specs;
  ParameterLayout layout;
};

class Declarer {
 public:
  explicit Declarer(const GptConfig& config) : config_(config) {}

  Declaration Declare() {
    ParameterLayout& layout = result_.layout;
    const int64_t vocab = config_.vocab_size, dim = config_.dim;
    ParameterSpec scalars{"scalars", "scalars", {ScalarCount(config_)}, DType::kF32};
    scalars.cols = ScalarCount(config_);
    layout.scalars = Add(std::move(scalars));
    layout.embed = Matrix("embed.weight", "embed", DType::kBF16, vocab, dim);
    layout.smear_gate =
        Matrix("smear_gate.weight", "smear_gate", DType::kBF16, 1, config_.gate_features);
    for (int k = 0; k < config_.value_embeddings; ++k) {
      layout.value_embeds.push_back(Matrix(absl::StrCat("value_embeds.", k, ".weight"),
                                           "value_embed", DType::kBF16, vocab, dim));
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) layout.layers.push_back(Layer(i));
    layout.lm_head = Matrix("lm_head.weight", "lm_head", DType::kBF16, vocab, dim);
    return std::move(result_);
  }

 private:
  LayerParameters Layer(size_t index) {
    LayerParameters layer;
    const std::string block = absl::StrCat("blocks.", index, ".");
    const int64_t dim = config_.dim, mlp_dim = config_.mlp_dim;
    if (config_.layers[index].attention) {
      ParameterSpec qkvo{block + "attn.qkvo_w", "attn", {dim, 4 * dim}, DType::kF32, 4, dim, dim};
      layer.qkvo = Add(std::move(qkvo));
      layer.attn_gate = Matrix(block + "attn.attn_gate.weight", "attn_gate", DType::kBF16,
                               config_.heads, config_.gate_features);
    }
    if (config_.layers[index].mlp) {
      layer.c_fc = Matrix(block + "mlp.c_fc", "mlp", DType::kF32, dim, mlp_dim);
      layer.c_proj = Matrix(block + "mlp.c_proj", "mlp", DType::kF32, dim, mlp_dim);
    }
    return layer;
  }

  int Matrix(std::string name, std::string label, DType dtype, int64_t rows, int64_t cols) {
    return Add({std::move(name), std::move(label), {rows, cols}, dtype, 1, rows, cols});
  }

  int Add(ParameterSpec spec) {
    result_.specs.push_back(std::move(spec));
    return static_cast<int>(result_.specs.size()) - 1;
  }

  const GptConfig& config_;
  Declaration result_;
};

}  // namespace

std::vector<ParameterSpec> ParameterSpecs(const GptConfig& config) {
  return Declarer(config).Declare().specs;
}

ParameterLayout LayoutOf(const GptConfig& config) { return Declarer(config).Declare().layout; }

absl::StatusOr<std::unique_ptr<ParameterArena>> ParameterArena::Create(const GptConfig& config,
                                                                       int64_t leaves,
                                                                       kernels::Backend& backend) {
  CHECK_GE(leaves, 0);
  const std::vector<ParameterSpec> specs = ParameterSpecs(config);
  kernels::ArenaPlan value_plan, gradient_plan;
  std::vector<kernels::TensorId> values, gradients;
  for (const ParameterSpec& spec : specs) {
    values.push_back(value_plan.Add(spec.name, spec.dtype, spec.shape));
    if (leaves > 0) {
      gradients.push_back(
          gradient_plan.Add(spec.name + ".grad", DType::kF32, {leaves, spec.size()}));
    }
  }
  auto arena = std::make_unique<ParameterArena>();
  ABSL_ASSIGN_OR_RETURN(arena->values_, kernels::Arena::Create(std::move(value_plan), backend));
  if (leaves > 0) {
    ABSL_ASSIGN_OR_RETURN(arena->gradients_,
                          kernels::Arena::Create(std::move(gradient_plan), backend));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    kernels::Parameter parameter;
    parameter.spec = specs[i];
    parameter.value = arena->values_.Get(values[i]);
    if (leaves > 0) parameter.grad = arena->gradients_.Get(gradients[i]);
    arena->parameters_.push_back(std::move(parameter));
  }
  return arena;
}

absl::StatusOr<kernels::Parameter> ParameterArena::Find(absl::string_view name) const {
  for (const kernels::Parameter& parameter : parameters_) {
    if (name == parameter.spec.name) return parameter;
  }
  return absl::NotFoundError(
      absl::StrCat("no weight \"", name, "\" among the model's ", parameters_.size()));
}

void ParameterArena::ZeroGradients(kernels::Queue& queue) const {
  for (const kernels::Parameter& parameter : parameters_) {
    if (parameter.grad) kernels::FillZero(parameter.grad, queue);
  }
}

}  // namespace model
