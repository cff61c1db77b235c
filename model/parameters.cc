#include "model/parameters.h"

#include <algorithm>
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
    return config_.storage == Storage::kBanks ? DeclareBanks() : DeclareLayers();
  }

 private:
  Declaration DeclareLayers() {
    ParameterLayout& layout = result_.layout;
    const int64_t dim = config_.dim;
    ParameterSpec scalars{"scalars", "scalars", {ScalarCount(config_)}, DType::kF32};
    scalars.cols = ScalarCount(config_);
    layout.scalars = Add(std::move(scalars));
    const int64_t rows = EmbeddingRows(config_);
    layout.embed = Matrix("embed.weight", "embed", DType::kBF16, rows, dim);
    DeclareSmearAndSkipGates();
    for (int k = 0; k < config_.value_embeddings; ++k) {
      layout.value_embeds.push_back(Matrix(absl::StrCat("value_embeds.", k, ".weight"),
                                           "value_embed", DType::kBF16, rows, dim));
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) layout.layers.push_back(Layer(i));
    layout.lm_head = Head();
    return std::move(result_);
  }

  Declaration DeclareBanks() {
    ParameterLayout& layout = result_.layout;
    const int64_t rows = EmbeddingRows(config_), dim = config_.dim, hidden = config_.mlp_dim;
    const int64_t heads = config_.heads, features = config_.gate_features, mlps = MlpSlots(config_);
    const auto attention = static_cast<int64_t>(AttentionLayers(config_).size());
    const auto gated = static_cast<int64_t>(ValueEmbeddingLayers(config_).size());
    if (config_.split_attention_banks) {
      layout.qk_bank = MatrixBank("qk_bank", "qk", attention * heads, 2 * config_.head_dim, dim);
      layout.vo_bank = MatrixBank("vo_bank", "vo", 2 * attention, dim, dim);
    } else {
      layout.attn_bank = Add(
          {"attn_bank", "attn", {attention, 4 * dim, dim}, DType::kBF16, 4 * attention, dim, dim});
    }
    layout.mlp_bank =
        Add({"mlp_bank", "mlp", {mlps, 2, hidden, dim}, DType::kBF16, 2 * mlps, hidden, dim});
    layout.scalars = Vector("scalars", ScalarCount(config_));
    for (int k = 0; k < config_.value_embeddings; ++k) {
      layout.value_embeds.push_back(Matrix(absl::StrCat("value_embeds.", k, ".weight"),
                                           absl::StrCat("ve", k), DType::kBF16, rows, dim));
    }
    DeclareSmearAndSkipGates();
    if (config_.attention_gate) {
      layout.attn_gate_bank = Gates("attn_gate_bank", attention, heads, features);
    }
    if (config_.value_mix == ValueMix::kGate && gated > 0) {
      layout.ve_gate_bank = Gates("ve_gate_bank", gated, heads, features);
    }
    layout.x0_lambdas = Vector("x0_lambdas", static_cast<int64_t>(config_.layers.size()));
    layout.lm_head = Head();
    layout.embed = Matrix("embed.weight", "embed", DType::kBF16, rows, dim);
    return std::move(result_);
  }

  void DeclareSmearAndSkipGates() {
    if (config_.smear) {
      result_.layout.smear_gate =
          Matrix("smear_gate.weight", "smear_gate", DType::kBF16, 1, config_.gate_features);
    }
    if (config_.skip_weight == SkipWeight::kGate) {
      result_.layout.skip_gate =
          Matrix("skip_gate.weight", "skip_gate", DType::kBF16, 1, config_.gate_features);
    }
  }

  LayerParameters Layer(size_t index) {
    LayerParameters layer;
    const LayerConfig& has = config_.layers[index];
    const std::string block = absl::StrCat("blocks.", index, ".");
    const int64_t dim = config_.dim, mlp_dim = config_.mlp_dim, features = config_.gate_features;
    const DType dtype = config_.matrix_dtype;
    if (has.attention) {
      std::vector<int64_t> shape = {dim, 4 * dim};
      if (config_.qkvo_shape == QkvoShape::kStack) shape = {4, dim, dim};
      layer.qkvo = Add({block + "attn.qkvo_w", "attn", std::move(shape), dtype, 4, dim, dim});
    }
    if (has.attention && config_.attention_gate) {
      layer.attn_gate = Matrix(block + "attn.attn_gate.weight", "attn_gate", DType::kBF16,
                               config_.heads, features);
    }
    if (has.value_embedding >= 0 && config_.value_mix == ValueMix::kGate) {
      layer.value_gate =
          Matrix(block + "attn.ve_gate.weight", "ve_gate", DType::kBF16, config_.heads, features);
    }
    if (has.mlp) {
      const ParameterNames& names = config_.names;
      const bool first_rows = config_.mlp_layout != MlpLayout::kDimHidden;
      const bool second_rows = config_.mlp_layout == MlpLayout::kHiddenDim;
      const auto add = [&](const std::string& name, const std::string& label, bool hidden_rows) {
        return Matrix(block + "mlp." + name, label, dtype, hidden_rows ? mlp_dim : dim,
                      hidden_rows ? dim : mlp_dim);
      };
      layer.c_fc = add(names.mlp_first, names.mlp_first_label, first_rows);
      layer.c_proj = add(names.mlp_second, names.mlp_second_label, second_rows);
    }
    return layer;
  }

  int Head() {
    const bool transposed = config_.head_layout == HeadLayout::kDimVocab;
    const int64_t rows = transposed ? config_.dim : config_.vocab_size;
    const int64_t cols = transposed ? config_.vocab_size : config_.dim;
    return Matrix(config_.names.head, "lm_head", config_.head_dtype, rows, cols);
  }

  int Matrix(std::string name, std::string label, DType dtype, int64_t rows, int64_t cols) {
    return Add({std::move(name), std::move(label), {rows, cols}, dtype, 1, rows, cols});
  }

  int Vector(const char* name, int64_t size) {
    return Add({name, name, {size}, DType::kF32, 1, 1, size});
  }

  int MatrixBank(const char* name, const char* label, int64_t matrices, int64_t rows,
                 int64_t cols) {
    return Add({name, label, {matrices, rows, cols}, DType::kBF16, matrices, rows, cols});
  }

  int Gates(const char* name, int64_t layers, int64_t heads, int64_t features) {
    return Add({name, name, {layers, heads, features}, DType::kBF16, layers, heads, features});
  }

  int Add(ParameterSpec spec) {
    result_.specs.push_back(std::move(spec));
    return static_cast<int>(result_.specs.size()) - 1;
  }

  const GptConfig& config_;
  Declaration result_;
};

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements that `ranks` equal chunks need, whether they are cut between matrices or anywhere.
int64_t Room(const GptConfig& config, const ParameterSpec& spec, int ranks) {
  if (config.storage != Storage::kBanks) return spec.size();  // they are stacked in groups anyway
  return std::max(RoundUp(spec.size(), ranks),
                  RoundUp(spec.matrices, ranks) * spec.rows * spec.cols);
}

}  // namespace

std::vector<ParameterSpec> ParameterSpecs(const GptConfig& config) {
  return Declarer(config).Declare().specs;
}

ParameterLayout LayoutOf(const GptConfig& config) { return Declarer(config).Declare().layout; }

std::vector<int> AttentionLayers(const GptConfig& config) {
  std::vector<int> layers;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].attention) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

std::vector<int> ValueEmbeddingLayers(const GptConfig& config) {
  std::vector<int> layers;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].value_embedding >= 0) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

int64_t MlpSlots(const GptConfig& config) {
  return (static_cast<int64_t>(config.layers.size()) + 3) / 4 * 4;
}

absl::StatusOr<std::unique_ptr<ParameterArena>> ParameterArena::Create(const GptConfig& config,
                                                                       int64_t leaves,
                                                                       kernels::Backend& backend,
                                                                       int ranks) {
  CHECK_GE(leaves, 0);
  CHECK_GE(ranks, 1);
  const std::vector<ParameterSpec> specs = ParameterSpecs(config);
  kernels::ArenaPlan value_plan, gradient_plan;
  std::vector<kernels::TensorId> values, gradients;
  for (const ParameterSpec& spec : specs) {
    values.push_back(value_plan.Add(spec.name, spec.dtype, {Room(config, spec, ranks)}));
    if (leaves > 0) {
      const int64_t size = leaves == 1 ? Room(config, spec, ranks) : spec.size();
      gradients.push_back(gradient_plan.Add(spec.name + ".grad", DType::kF32, {leaves, size}));
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
    parameter.room = Room(config, specs[i], ranks);
    parameter.value =
        arena->values_.Get(values[i]).Slice(0, specs[i].size()).Reshape(specs[i].shape);
    if (leaves > 0) {
      parameter.grad = arena->gradients_.Get(gradients[i])
                           .Reshape({-1})
                           .Slice(0, leaves * specs[i].size())
                           .Reshape({leaves, specs[i].size()});
    }
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
