#include "tools/export_hf/hf_config.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "sched/schedules.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using nlohmann::ordered_json;

// The keys of config.json's "nanospeed"; vocab_size is one of its own.
constexpr const char* kSourceKeys[] = {
    "record", "preset", "step", "total_steps", "schedule_extension", "tokens"};
// A further key, of runs with an extension of their own length.
constexpr const char* kExtensionKey = "extension_steps";

const char* NameOf(model::Storage storage) {
  return storage == model::Storage::kBanks ? "banks" : "per_layer";
}

const char* NameOf(model::MlpLayout layout) {
  switch (layout) {
    case model::MlpLayout::kDimHidden:
      return "dim_hidden";
    case model::MlpLayout::kOutIn:
      return "out_in";
    case model::MlpLayout::kHiddenDim:
      return "hidden_dim";
  }
  return "";
}

const char* NameOf(model::SkipWeight weight) {
  switch (weight) {
    case model::SkipWeight::kSigmoid:
      return "sigmoid";
    case model::SkipWeight::kPlain:
      return "plain";
    case model::SkipWeight::kGate:
      return "gate";
  }
  return "";
}

ordered_json Layers(const model::GptConfig& config) {
  ordered_json layers = ordered_json::array();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const model::LayerConfig& layer = config.layers[i];
    const int index = static_cast<int>(i);
    layers.push_back({{"attention", layer.attention},
                      {"mlp", layer.mlp},
                      {"long_window", layer.long_window},
                      {"paired_heads", layer.paired_heads},
                      {"key_offset", layer.key_offset},
                      {"value_embedding", layer.value_embedding},
                      {"skip_from", layer.skip_from},
                      {"skip_scalar", layer.skip_from < 0 ? -1 : model::SkipScalar(config, index)},
                      {"block_lambda", model::BlockLambda(config, index)},
                      {"x0_lambda", model::X0Lambda(config, index)},
                      {"attention_lambda", model::AttentionLambda(config, index)},
                      {"attention_factor", model::WeightFactor(config, index)}});
  }
  return layers;
}

void AddStorage(const model::GptConfig& config, ordered_json* out) {
  out->update({{"storage", NameOf(config.storage)},
               {"split_attention_banks", config.split_attention_banks},
               {"qkvo_shape", config.qkvo_shape == model::QkvoShape::kStack ? "stack" : "wide"},
               {"mlp_layout", NameOf(config.mlp_layout)},
               {"mlp_names", {config.names.mlp_first, config.names.mlp_second}},
               {"head_layout",
                config.head_layout == model::HeadLayout::kDimVocab ? "dim_vocab" : "vocab_dim"},
               {"head_name", config.names.head},
               {"scalar_count", model::ScalarCount(config)}});
}

void AddArchitecture(const model::GptConfig& config, ordered_json* out) {
  const bool stream = config.attention_input == model::AttentionInput::kStream;
  const bool neighbours = config.rotary_pairs == model::RotaryPairs::kNeighbours;
  out->update(
      {{"vocab_size", config.vocab_size},
       {"embedding_rows", model::EmbeddingRows(config)},
       {"hidden_size", config.dim},
       {"intermediate_size", config.mlp_dim},
       {"num_hidden_layers", config.layers.size()},
       {"num_attention_heads", config.heads},
       {"head_dim", config.head_dim},
       {"gate_features", config.gate_features},
       {"value_embeddings", config.value_embeddings},
       {"smear_lambda", config.smear ? model::SmearLambda(config) : -1},
       {"attention_input", stream ? "stream" : "normed"},
       {"attention_gate", config.attention_gate},
       {"rotary_pairs", neighbours ? "neighbours" : "halves"},
       {"rotary_dtype", kernels::Name(config.rotary_dtype)},
       {"value_norm", config.value_norm},
       {"value_mix", config.value_mix == model::ValueMix::kGate ? "gate" : "scalars"},
       {"skip_weight", NameOf(config.skip_weight)},
       {"backout_layer", config.backout_layer},
       {"backout_lambda", config.backout_layer < 0 ? -1 : model::BackoutLambda(config)},
       {"softcap_kind", config.softcap_kind == kernels::SoftCap::kIsru ? "isru" : "sigmoid"},
       {"softcap", config.softcap},
       {"softcap_temperature", config.softcap_temperature},
       {"softcap_shift", config.softcap_shift},
       {"layers", Layers(config)}});
}

void AddSchedule(const SavedModel& saved, ordered_json* out) {
  const sched::Schedules& schedules = saved.recipe.schedules;
  const sched::Windows windows = sched::WindowsAt(schedules.window, schedules.run, saved.step);
  const sched::Rotary rotary =
      sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, saved.step);
  out->update({{"short_window", windows.short_tokens},
               {"long_window", windows.long_tokens},
               {"window_block", saved.recipe.model.window_block},
               {"attention_scale", static_cast<float>(rotary.attn_scale)},
               {"rotary_frequencies", rotary.frequencies}});
}

absl::Status NoExport(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what, "; give a folder that export_hf wrote"));
}

}  // namespace

std::map<std::string, std::string> SourceOf(const SavedModel& saved) {
  const Recipe& recipe = saved.recipe;
  std::map<std::string, std::string> source = {
      {"format", "pt"},
      {"record", recipe.record},
      {"preset", recipe.preset},
      {"vocab_size", absl::StrCat(recipe.model.vocab_size)},
      {"step", absl::StrCat(saved.step)},
      {"total_steps", absl::StrCat(recipe.schedules.run.total())},
      {"schedule_extension", sched::HasLegacyExtension(recipe.schedules) ? "legacy" : "recipe"},
      {"tokens", saved.token_map.is_identity() ? "gpt2" : "gpt2_bytes"}};
  if (saved.extension_steps >= 0) source[kExtensionKey] = absl::StrCat(saved.extension_steps);
  return source;
}

std::string HfConfigJson(const SavedModel& saved) {
  ordered_json out = {
      {"model_type", "nanospeed"},
      {"architectures", {"NanospeedForCausalLM"}},
      {"auto_map",
       {{"AutoConfig", "configuration_nanospeed.NanospeedConfig"},
        {"AutoModelForCausalLM", "modeling_nanospeed.NanospeedForCausalLM"}}},
      {"dtype", "float32"},
      {"bos_token_id", saved.token_map.bos()},
      {"eos_token_id", saved.token_map.bos()},
      {"pad_token_id", saved.token_map.bos()},  // as for GPT-2; the attention mask tells them apart
      {"tie_word_embeddings", false},
  };
  AddStorage(saved.recipe.model, &out);
  AddArchitecture(saved.recipe.model, &out);
  AddSchedule(saved, &out);
  const std::map<std::string, std::string> source = SourceOf(saved);
  for (const char* key : kSourceKeys) out["nanospeed"][key] = source.at(key);
  if (saved.extension_steps >= 0) out["nanospeed"][kExtensionKey] = source.at(kExtensionKey);
  return out.dump(2) + "\n";
}

std::string HfGenerationConfigJson(const SavedModel& saved) {
  std::vector<int64_t> without_text;
  for (int64_t id = saved.token_map.vocab_size(); id < saved.recipe.model.vocab_size; ++id) {
    without_text.push_back(id);
  }
  const ordered_json out = {{"bos_token_id", saved.token_map.bos()},
                            {"eos_token_id", saved.token_map.bos()},
                            {"pad_token_id", saved.token_map.bos()},
                            {"suppress_tokens", without_text},
                            {"use_cache", false}};
  return out.dump() + "\n";
}

absl::StatusOr<HfSource> ParseHfConfig(const std::string& text, const std::string& path) {
  const ordered_json in = ordered_json::parse(text, nullptr, false);
  if (!in.is_object()) return NoExport(path, "not a JSON object");
  if (!in.contains("model_type") || in["model_type"] != "nanospeed") {
    return NoExport(path,
                    absl::StrCat("model_type is ", in.value("model_type", ordered_json()).dump(),
                                 ", not \"nanospeed\""));
  }
  if (!in.contains("nanospeed") || !in["nanospeed"].is_object()) {
    return NoExport(path, "lacks the object nanospeed, which says where the model comes from");
  }
  HfSource source;
  for (const char* key : kSourceKeys) {
    if (!in["nanospeed"].contains(key) || !in["nanospeed"][key].is_string()) {
      return NoExport(path, absl::StrCat("nanospeed lacks ", key));
    }
    source.metadata[key] = in["nanospeed"][key];
  }
  if (in["nanospeed"].contains(kExtensionKey)) {
    if (!in["nanospeed"][kExtensionKey].is_string()) {
      return NoExport(path, absl::StrCat("nanospeed: ", kExtensionKey, " is no text"));
    }
    source.metadata[kExtensionKey] = in["nanospeed"][kExtensionKey];
  }
  if (!in.contains("vocab_size") || !in["vocab_size"].is_number_integer()) {
    return NoExport(path, "lacks vocab_size");
  }
  const int64_t vocab_size = in["vocab_size"];
  source.metadata["vocab_size"] = absl::StrCat(vocab_size);
  source.metadata["format"] = "pt";
  const absl::StatusOr<Recipe> recipe =
      FindRecipe(source.metadata["record"], source.metadata["preset"], vocab_size);
  if (!recipe.ok()) return NoExport(path, absl::StrCat("nanospeed: ", recipe.status().message()));
  source.recipe = *recipe;
  return source;
}

}  // namespace tools
