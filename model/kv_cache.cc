#include "model/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace model {

using kernels::DType;

KvCache::KvCache(const GptConfig& config, int64_t tokens)
    : tokens_(tokens), dim_(config.dim), layers_(config.layers.size()) {
  for (size_t i = 0; i < layers_.size(); ++i) has_attention_.push_back(config.layers[i].attention);
}

void KvCache::Plan(kernels::ArenaPlan& plan) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!has_attention_[i]) continue;
    layers_[i].k_id = plan.Add(absl::StrCat("kept k ", i), DType::kBF16, {1, tokens_, dim_});
    layers_[i].v_id = plan.Add(absl::StrCat("kept v ", i), DType::kBF16, {1, tokens_, dim_});
  }
}

void KvCache::Bind(const kernels::Arena& arena) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!has_attention_[i]) continue;
    layers_[i].k = arena.Get(layers_[i].k_id);
    layers_[i].v = arena.Get(layers_[i].v_id);
  }
}

int64_t RowsLookedBack(const GptConfig& config) {
  const bool offsets = std::any_of(config.layers.begin(), config.layers.end(),
                                   [](const LayerConfig& layer) { return layer.key_offset; });
  return int64_t{config.smear} + int64_t{offsets};
}

}  // namespace model
