#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace model {
namespace {

int LayerCount(const GptConfig& config) { return static_cast<int>(config.layers.size()); }
bool HasBanks(const GptConfig& config) { return config.storage == Storage::kBanks; }

bool HasGates(const GptConfig& config) {
  return config.smear || config.attention_gate || config.value_mix == ValueMix::kGate ||
         config.skip_weight == SkipWeight::kGate;
}

absl::Status ValidateSizes(const GptConfig& config) {
  if (config.vocab_size < 1 || config.dim < 1 || config.heads < 1 || config.mlp_dim < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: vocab_size ", config.vocab_size, ", dim ", config.dim, ", heads ",
                     config.heads, " and mlp_dim ", config.mlp_dim, " must all be positive"));
  }
  if (config.heads * config.head_dim != config.dim) {
    return absl::InvalidArgumentError(absl::StrCat("model: heads ", config.heads, " x head_dim ",
                                                   config.head_dim, " is not dim ", config.dim));
  }
  if (config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: head_dim ", config.head_dim, " must be even, for rotary turns pairs"));
  }
  if (HasGates(config) && (config.gate_features < 1 || config.gate_features > config.dim)) {
    return absl::InvalidArgumentError(absl::StrCat("model: gate_features ", config.gate_features,
                                                   " must be in [1, dim = ", config.dim, "]"));
  }
  if (config.value_embeddings < 0 || config.spare_scalars < 0) {
    return absl::InvalidArgumentError(absl::StrCat("model: value_embeddings ",
                                                   config.value_embeddings, " and spare_scalars ",
                                                   config.spare_scalars, " must not be negative"));
  }
  if (config.embedding_rows < 0 || config.embedding_rows > config.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: embedding_rows ", config.embedding_rows,
                     " must be in [0, vocab_size = ", config.vocab_size, "]"));
  }
  return absl::OkStatus();
}

absl::Status ValidateHead(const GptConfig& config) {
  if (config.loss_weights < 0 || config.loss_weights > kernels::kMaxLossWeights) {
    return absl::InvalidArgumentError(absl::StrCat("model: loss_weights ", config.loss_weights,
                                                   " must be in [0, ", kernels::kMaxLossWeights,
                                                   "]"));
  }
  if (!(config.softcap > 0) || !(config.softcap_temperature > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: softcap ", config.softcap, " and softcap_temperature ",
                     config.softcap_temperature, " must be positive"));
  }
  const Fp8HeadScales& scales = config.fp8_scales;
  if (config.fp8_head && !(scales.x >= 0 && scales.w > 0 && scales.grad > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("model: fp8_head needs fp8_scales; x ", scales.x,
                                                   ", w ", scales.w, ", grad ", scales.grad,
                                                   " are not all positive (x may be 0)"));
  }
  return absl::OkStatus();
}

bool IsF32OrBf16(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 || dtype == kernels::DType::kBF16;
}

// A combination of parts for which there is no code, and a text that names the fields.
struct Rule {
  bool broken;
  std::string text;
};

std::vector<Rule> StorageRules(const GptConfig& config) {
  const bool banks = HasBanks(config);
  const auto bf16 = kernels::DType::kBF16;
  return {
      {!IsF32OrBf16(config.matrix_dtype) || !IsF32OrBf16(config.head_dtype) ||
           !IsF32OrBf16(config.rotary_dtype),
       "matrix_dtype, head_dtype and rotary_dtype must be f32 or bf16"},
      {banks && (config.matrix_dtype != bf16 || config.head_dtype != bf16),
       "storage kBanks needs matrix_dtype and head_dtype bf16: products read the banks themselves"},
      {banks && config.mlp_layout != MlpLayout::kHiddenDim,
       "storage kBanks needs mlp_layout kHiddenDim: the MLPs' bank has matrices of one shape"},
      {banks && config.spare_scalars > 0, "spare_scalars need storage kPerLayer"},
      {!banks && config.split_attention_banks,
       "split_attention_banks needs weights in banks (storage kBanks)"},
      {!banks && config.attention_factors,
       "attention_factors needs storage kBanks: nothing multiplies a layer's own matrices"},
      {config.split_attention_banks && config.heads % 2 != 0,
       absl::StrCat("split_attention_banks has pairs of heads, but heads is ", config.heads,
                    ", an odd number")},
  };
}

std::vector<Rule> InitialRules(const GptConfig& config) {
  const bool bf16_head = config.head_dtype == kernels::DType::kBF16;
  const InitialWeights& initial = config.initial;
  return {
      {config.split_attention_banks ? initial.o != initial.qkv : initial.o != 0,
       "initial.o must be that of Q, K and V with split_attention_banks, and 0 without"},
      {initial.embedding_is_head &&
           (config.head_layout != HeadLayout::kDimVocab || !bf16_head || initial.embedding != 0 ||
            EmbeddingRows(config) != config.vocab_size),
       "initial.embedding_is_head needs a bf16 head of head_layout kDimVocab, tables of vocab_size "
       "rows, and initial.embedding 0"},
      {initial.head_in_bf16 && (!bf16_head || !(initial.head > 0)),
       "initial.head_in_bf16 needs head_dtype bf16 and initial.head > 0"},
  };
}

std::vector<Rule> AttentionRules(const GptConfig& config) {
  const bool neighbours = config.rotary_pairs == RotaryPairs::kNeighbours;
  const bool gate = config.value_mix == ValueMix::kGate;
  return {
      {config.attention_input == AttentionInput::kStream && (config.attention_gate || gate),
       "attention_input kStream has neither an attention_gate nor value_mix kGate: their gradient "
       "enters at attention's norm"},
      {neighbours != gate,
       "rotary_pairs kNeighbours and value_mix kGate are one op, kHalves and kScalars the other: "
       "choose both of one"},
      {neighbours && (config.rotary_dtype != kernels::DType::kBF16 || config.value_norm),
       "rotary_pairs kNeighbours needs rotary_dtype bf16 and no value_norm"},
      {neighbours && config.head_dim % 8 != 0,
       absl::StrCat("rotary_pairs kNeighbours needs a head_dim that is a multiple of 8, not ",
                    config.head_dim)},
  };
}

// The one place that knows what does not go together: all other combinations run.
absl::Status PartsThatDoNotGoTogether(const GptConfig& config) {
  for (const auto& rules : {StorageRules(config), InitialRules(config), AttentionRules(config)}) {
    for (const Rule& rule : rules) {
      if (rule.broken) return absl::InvalidArgumentError(absl::StrCat("model: ", rule.text));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidatePairing(const GptConfig& config, int index) {
  const LayerConfig& layer = config.layers[index];
  const std::string where = absl::StrCat("model: layer ", index, ": ");
  if (!layer.paired_heads && !layer.key_offset) return absl::OkStatus();
  if (config.rotary_pairs != RotaryPairs::kNeighbours || !layer.attention) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "paired_heads and key_offset need attention and rotary_pairs kNeighbours"));
  }
  if (layer.paired_heads && layer.key_offset) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has both paired_heads and key_offset"));
  }
  if (layer.paired_heads && config.heads % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "paired_heads, but heads is ", config.heads, ", an odd number"));
  }
  return absl::OkStatus();
}

// Whether there is a skip weight for the connection into layer `index`, and nothing else uses it.
absl::Status ValidateSkip(const GptConfig& config, int index) {
  const LayerConfig& layer = config.layers[index];
  const std::string where = absl::StrCat("model: layer ", index, ": ");
  if (!layer.executed()) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has a skip connection but is not run"));
  }
  if (layer.skip_from < 0 || layer.skip_from >= index ||
      !config.layers[layer.skip_from].executed()) {
    return absl::InvalidArgumentError(absl::StrCat(where, "skip from layer ", layer.skip_from,
                                                   ", which is not an earlier layer that is run"));
  }
  if (!HasBanks(config) && config.skip_weight != SkipWeight::kPlain &&
      index < LayerCount(config) / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "only the upper half of the layers has skip weights in `scalars`"));
  }
  for (int other = 0; other < index; ++other) {
    if (HasBanks(config) && config.layers[other].skip_from >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(where, "has a skip connection, as layer ",
                                                     other, " has; with banks there is one"));
    }
    if (config.layers[other].skip_from == layer.skip_from) {
      return absl::InvalidArgumentError(absl::StrCat(where, "skips from layer ", layer.skip_from,
                                                     ", as layer ", other, " already does"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLayer(const GptConfig& config, int index) {
  const LayerConfig& layer = config.layers[index];
  const std::string where = absl::StrCat("model: layer ", index, ": ");
  ABSL_RETURN_IF_ERROR(ValidatePairing(config, index));
  if (layer.value_embedding >= config.value_embeddings || layer.value_embedding < -1) {
    return absl::InvalidArgumentError(absl::StrCat(where, "value embedding ", layer.value_embedding,
                                                   " of ", config.value_embeddings));
  }
  if (layer.value_embedding >= 0 && !layer.attention) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "has a value embedding but no attention to use it"));
  }
  return layer.skip_from == -1 ? absl::OkStatus() : ValidateSkip(config, index);
}

absl::Status ValidateBackout(const GptConfig& config) {
  const int backout = config.backout_layer;
  if (backout == -1) return absl::OkStatus();
  const std::string where = absl::StrCat("model: backout_layer ", backout);
  if (backout < 0 || backout >= LayerCount(config) || !config.layers[backout].executed()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is not a layer that is run"));
  }
  bool later = false;
  for (int i = backout + 1; i < LayerCount(config); ++i) {
    later = later || config.layers[i].executed();
    if (config.layers[i].skip_from == backout) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": layer ", i, " skips from it, too; its output has one second use"));
    }
  }
  if (!later) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, " is the last one that is run; nothing would be left to learn from it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const GptConfig& config) {
  ABSL_RETURN_IF_ERROR(ValidateSizes(config));
  ABSL_RETURN_IF_ERROR(ValidateHead(config));
  ABSL_RETURN_IF_ERROR(PartsThatDoNotGoTogether(config));
  bool any = false;
  for (int i = 0; i < LayerCount(config); ++i) {
    ABSL_RETURN_IF_ERROR(ValidateLayer(config, i));
    any = any || config.layers[i].executed();
  }
  if (!any) return absl::InvalidArgumentError("model: no layer has attention or an MLP");
  return ValidateBackout(config);
}

int64_t EmbeddingRows(const GptConfig& config) {
  return config.embedding_rows > 0 ? config.embedding_rows : config.vocab_size;
}

bool HasPairedHeads(const GptConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.paired_heads; });
}

kernels::HeadPrecision TrainingHeadPrecision(const GptConfig& config) {
  const Fp8HeadScales& scales = config.fp8_scales;
  const double never_saturates = std::sqrt(static_cast<double>(config.dim)) / 448.0;
  kernels::HeadPrecision precision;
  precision.fp8 = config.fp8_head;
  precision.x_scale = static_cast<float>(scales.x > 0 ? scales.x : never_saturates);
  precision.w_scale = static_cast<float>(scales.w);
  precision.grad_scale = static_cast<float>(scales.grad);
  return precision;
}

namespace {

// The first scalar of each kind; -1 where there is none. See the table in config.h.
struct Places {
  int skip = -1, block = -1, value = -1, factor = -1, smear = -1, backout = -1;
  int count = 0;
};

Places PlacesOf(const GptConfig& config) {
  const int n = LayerCount(config);
  Places places;
  const auto take = [&places](int* first, bool present, int count) {
    if (!present) return;
    *first = places.count;
    places.count += count;
  };
  const bool banks = HasBanks(config);
  take(&places.skip, !banks, n);
  take(&places.block, true, banks ? n : 2 * n);
  take(&places.factor, config.attention_factors, 2 * n);
  take(&places.value, !banks && config.value_mix == ValueMix::kScalars, 2 * n);
  take(&places.smear, banks || config.smear, 1);
  take(&places.backout, banks || config.backout_layer >= 0, 1);
  take(&places.skip, banks, 1);
  take(&places.value, banks && config.value_mix == ValueMix::kScalars, 2 * n);
  places.count += static_cast<int>(config.spare_scalars);
  return places;
}

}  // namespace

int SkipScalar(const GptConfig& config, int layer) {
  if (HasBanks(config)) return PlacesOf(config).skip;
  return PlacesOf(config).skip + (config.skip_weight == SkipWeight::kPlain
                                      ? config.layers[layer].skip_from
                                      : layer - LayerCount(config) / 2);
}
int BlockLambda(const GptConfig& config, int layer) {
  return PlacesOf(config).block + (HasBanks(config) ? layer : 2 * layer);
}
int X0Lambda(const GptConfig& config, int layer) {
  return HasBanks(config) ? PlacesOf(config).count + layer : BlockLambda(config, layer) + 1;
}
int WeightFactor(const GptConfig& config, int layer) {
  const int first = PlacesOf(config).factor;
  return first < 0 ? -1 : first + 2 * layer;
}
int AttentionLambda(const GptConfig& config, int layer) {
  const int first = PlacesOf(config).value;
  return first < 0 ? -1 : first + 2 * layer;
}
int SmearLambda(const GptConfig& config) { return PlacesOf(config).smear; }
int BackoutLambda(const GptConfig& config) { return PlacesOf(config).backout; }

int64_t ScalarCount(const GptConfig& config, int64_t multiple) {
  return (PlacesOf(config).count + multiple - 1) / multiple * multiple;
}

int64_t HiddenMatrixParameters(const GptConfig& config) {
  int64_t count = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention) count += 4 * config.dim * config.dim;
    if (layer.mlp) count += 2 * config.dim * config.mlp_dim;
  }
  return count;
}

int64_t DenseParametersPerToken(const GptConfig& config) {
  return HiddenMatrixParameters(config) + config.vocab_size * config.dim;
}

int64_t ForwardFlopsPerToken(const GptConfig& config) {
  return 2 * DenseParametersPerToken(config);
}

int64_t TrainingFlopsPerToken(const GptConfig& config) { return 3 * ForwardFlopsPerToken(config); }

}  // namespace model
