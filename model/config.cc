#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace model {
namespace {

int LayerCount(const GptConfig& config) { return static_cast<int>(config.layers.size()); }
bool IsBf16(const GptConfig& config) { return config.style == WeightStyle::kPerLayerBf16; }
bool HasBanks(const GptConfig& config) { return config.style == WeightStyle::kBanks; }

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
  if (config.gate_features < 1 || config.gate_features > config.dim) {
    return absl::InvalidArgumentError(absl::StrCat("model: gate_features ", config.gate_features,
                                                   " must be in [1, dim = ", config.dim, "]"));
  }
  if (config.loss_weights < 0 || config.loss_weights > kernels::kMaxLossWeights) {
    return absl::InvalidArgumentError(absl::StrCat("model: loss_weights ", config.loss_weights,
                                                   " must be in [0, ", kernels::kMaxLossWeights,
                                                   "]"));
  }
  if (config.embedding_rows < 0 || config.embedding_rows > config.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: embedding_rows ", config.embedding_rows,
                     " must be in [0, vocab_size = ", config.vocab_size, "]"));
  }
  if (IsBf16(config) && (config.fp8_head || config.backout_layer != -1)) {
    return absl::InvalidArgumentError(
        "model: kPerLayerBf16 has neither an fp8 head nor a backout layer");
  }
  if (config.split_attention_banks && !HasBanks(config)) {
    return absl::InvalidArgumentError("model: split_attention_banks needs weights in banks");
  }
  if (config.split_attention_banks && config.heads % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: split_attention_banks has pairs of heads, but heads is ", config.heads,
                     ", an odd number"));
  }
  if (!(config.softcap > 0) || !(config.softcap_temperature > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: softcap ", config.softcap, " and softcap_temperature ",
                     config.softcap_temperature, " must be positive"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePairing(const GptConfig& config, int index) {
  const LayerConfig& layer = config.layers[index];
  const std::string where = absl::StrCat("model: layer ", index, ": ");
  if (!layer.paired_heads && !layer.key_offset) return absl::OkStatus();
  if (config.style != WeightStyle::kBanks || !layer.attention) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "paired_heads and key_offset need attention and weights in banks"));
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
  if (layer.skip_from == -1) return absl::OkStatus();
  if (!layer.executed()) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has a skip connection but is not run"));
  }
  if (layer.skip_from < 0 || layer.skip_from >= index ||
      !config.layers[layer.skip_from].executed()) {
    return absl::InvalidArgumentError(absl::StrCat(where, "skip from layer ", layer.skip_from,
                                                   ", which is not an earlier layer that is run"));
  }
  if (config.style == WeightStyle::kPerLayer && index < LayerCount(config) / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "only the upper half of the layers has skip weights in `scalars`"));
  }
  for (int other = 0; other < index; ++other) {
    if (config.style == WeightStyle::kBanks && config.layers[other].skip_from >= 0) {
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
  bool any = false;
  for (int i = 0; i < LayerCount(config); ++i) {
    ABSL_RETURN_IF_ERROR(ValidateLayer(config, i));
    any = any || config.layers[i].executed();
  }
  if (!any) return absl::InvalidArgumentError("model: no layer has attention or an MLP");
  return ValidateBackout(config);
}

absl::StatusOr<GptConfig> MuonCustomSizingConfig(const GptSize& size) {
  if (size.layers != 12) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: the layer table of the records is written for 12 layers, not ",
                     size.layers, "; change the width instead"));
  }
  GptConfig config;
  config.vocab_size = size.vocab_size;
  config.dim = size.dim;
  config.mlp_dim = size.mlp_dim;
  config.heads = size.heads;
  config.head_dim = size.head_dim;
  config.layers.resize(12);
  config.layers[0].attention = config.layers[0].mlp = false;
  config.layers[7].attention = false;
  for (int i : {4, 11}) config.layers[i].long_window = true;
  config.layers[1].value_embedding = 1;
  config.layers[2].value_embedding = 2;
  config.layers[9].value_embedding = 0;
  config.layers[10].value_embedding = 1;
  config.layers[11].value_embedding = 2;
  for (int i = 6; i <= 10; ++i) config.layers[i].skip_from = 11 - i;
  ABSL_RETURN_IF_ERROR(Validate(config));
  return config;
}

absl::StatusOr<GptConfig> FixMuonLRConfig(const GptSize& size) {
  ABSL_ASSIGN_OR_RETURN(GptConfig config, MuonCustomSizingConfig(size));
  config.backout_layer = 8;
  ABSL_RETURN_IF_ERROR(Validate(config));
  return config;
}

absl::StatusOr<GptConfig> Record7Config(const GptSize& size, int64_t embedding_rows) {
  GptConfig config;
  config.style = WeightStyle::kPerLayerBf16;
  config.vocab_size = size.vocab_size;
  config.embedding_rows = embedding_rows;
  config.dim = size.dim;
  config.mlp_dim = size.mlp_dim;
  config.heads = size.heads;
  config.head_dim = size.head_dim;
  config.layers.resize(16);
  config.layers[7].attention = false;
  for (int i : {0, 4, 11, 15}) config.layers[i].long_window = true;
  for (int k = 0; k < 3; ++k) {
    config.layers[k].value_embedding = config.layers[13 + k].value_embedding = k;
  }
  config.layers[9].skip_from = 6;
  config.layers[10].skip_from = 4;
  config.layers[11].skip_from = 2;
  config.window_block = 128;
  config.softcap_kind = kernels::SoftCap::kIsru;
  config.softcap = 15.0f;
  config.fp8_head = false;
  ABSL_RETURN_IF_ERROR(Validate(config));
  return config;
}

int64_t EmbeddingRows(const GptConfig& config) {
  return config.embedding_rows > 0 ? config.embedding_rows : config.vocab_size;
}

absl::StatusOr<GptConfig> UnifiedConfig(const GptSize& size) {
  GptConfig config;
  config.style = WeightStyle::kBanks;
  config.vocab_size = size.vocab_size;
  config.dim = size.dim;
  config.mlp_dim = size.mlp_dim;
  config.heads = size.heads;
  config.head_dim = size.head_dim;
  config.layers.resize(11);
  config.layers[6].attention = false;
  for (int i : {3, 10}) config.layers[i].long_window = config.layers[i].key_offset = true;
  for (int i : {0, 2, 5, 9}) config.layers[i].paired_heads = true;
  config.layers[0].value_embedding = 1;
  config.layers[1].value_embedding = 2;
  config.layers[8].value_embedding = 0;
  config.layers[9].value_embedding = 1;
  config.layers[10].value_embedding = 2;
  config.layers[6].skip_from = 3;
  config.backout_layer = 7;
  config.softcap = 23.0f;
  config.softcap_shift = 5.0f;
  config.softcap_temperature = 7.5f;
  config.loss_weights = 3;
  ABSL_RETURN_IF_ERROR(Validate(config));
  return config;
}

bool HasPairedHeads(const GptConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.paired_heads; });
}

kernels::HeadPrecision TrainingHeadPrecision(const GptConfig& config) {
  kernels::HeadPrecision precision;
  precision.fp8 = config.fp8_head;
  if (config.style == WeightStyle::kBanks) {
    precision.x_scale = static_cast<float>(100.0 / 448.0);
    precision.w_scale = static_cast<float>(1.6 / 448.0);
    precision.grad_scale = static_cast<float>(0.75 / 448.0);
    return precision;
  }
  precision.x_scale = static_cast<float>(std::sqrt(static_cast<double>(config.dim)) / 448.0);
  precision.w_scale = std::ldexp(1.0f, -9);
  precision.grad_scale = static_cast<float>(1.0 / 448.0);
  return precision;
}

int SkipScalar(const GptConfig& config, int layer) {
  if (IsBf16(config)) return config.layers[layer].skip_from;
  return HasBanks(config) ? 3 * LayerCount(config) + 2 : layer - LayerCount(config) / 2;
}
int BlockLambda(const GptConfig& config, int layer) {
  return HasBanks(config) ? layer : LayerCount(config) + 2 * layer;
}
int X0Lambda(const GptConfig& config, int layer) {
  return HasBanks(config) ? static_cast<int>(ScalarCount(config)) + layer
                          : BlockLambda(config, layer) + 1;
}
int WeightFactor(const GptConfig& config, int layer) { return LayerCount(config) + 2 * layer; }
int AttentionLambda(const GptConfig& config, int layer) {
  return 3 * LayerCount(config) + 2 * layer;
}
int SmearLambda(const GptConfig& config) { return (HasBanks(config) ? 3 : 5) * LayerCount(config); }
int BackoutLambda(const GptConfig& config) { return SmearLambda(config) + 1; }

int64_t ScalarCount(const GptConfig& config, int64_t multiple) {
  int64_t count = 6 * LayerCount(config);
  if (IsBf16(config)) {
    count = 5 * LayerCount(config);
  } else if (HasBanks(config)) {
    count = 3 * LayerCount(config) + 3;
  } else if (config.backout_layer >= 0) {
    count = 5 * LayerCount(config) + 2;
  }
  return (count + multiple - 1) / multiple * multiple;
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
