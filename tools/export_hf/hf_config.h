// config.json of an exported model: its architecture, and where it comes from.
#ifndef TOOLS_EXPORT_HF_HF_CONFIG_H_
#define TOOLS_EXPORT_HF_HF_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"
#include "tools/sample/saved_model.h"

namespace tools {

// config.json for the classes in configuration_nanospeed.py and modeling_nanospeed.py. Windows,
// rotary frequencies and the attention scale are those of the model's step.
std::string HfConfigJson(const SavedModel& saved);

// generation_config.json: ids that stand for no text are never drawn.
std::string HfGenerationConfigJson(const SavedModel& saved);

// Where a model comes from, as the metadata of its model.safetensors.
std::map<std::string, std::string> SourceOf(const SavedModel& saved);

struct HfSource {
  Recipe recipe;
  std::map<std::string, std::string> metadata;  // as SourceOf gave it
};

// From config.json's text; `path` is for errors. InvalidArgument for one that HfConfigJson did not
// write.
absl::StatusOr<HfSource> ParseHfConfig(const std::string& text, const std::string& path);

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_HF_CONFIG_H_
