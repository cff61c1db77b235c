#include "tools/sample/saved_model.h"

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/trainer/weights.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<SafetensorsFile> ReadModelFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return ReadSafetensors(path);
  const bool has_model = fs::exists(fs::path(path) / "model.safetensors", error);
  // A model's folder that is no checkpoint, such as an exported one, has no checksums.
  if (has_model && !fs::exists(fs::path(path) / "state.json", error)) {
    return ReadSafetensors(path + "/model.safetensors");
  }
  ABSL_ASSIGN_OR_RETURN(Checkpoint checkpoint, has_model
                                                   ? LoadCheckpoint(path)
                                                   : LoadLatestCheckpoint(path + "/checkpoints"));
  return std::move(checkpoint.model);
}

// The metadata's text under `key`, or an error that names it.
absl::StatusOr<std::string> Text(const SafetensorsFile& file, const std::string& path,
                                 const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its metadata lacks ", key,
                                                   "; give a file that track1 or track2 wrote"));
  }
  return found->second;
}

absl::StatusOr<int64_t> Number(const SafetensorsFile& file, const std::string& path,
                               const std::string& key) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, Text(file, path, key));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its metadata says ", key, "=", text, ", which is no count"));
  }
  return value;
}

}  // namespace

absl::StatusOr<SavedModel> LoadSavedModel(const std::string& path, kernels::Backend& backend,
                                          kernels::Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadModelFile(path));
  ABSL_ASSIGN_OR_RETURN(const std::string record, Text(file, path, "record"));
  ABSL_ASSIGN_OR_RETURN(const std::string preset, Text(file, path, "preset"));
  ABSL_ASSIGN_OR_RETURN(const std::string tokens, Text(file, path, "tokens"));
  ABSL_ASSIGN_OR_RETURN(const int64_t vocab_size, Number(file, path, "vocab_size"));
  ABSL_ASSIGN_OR_RETURN(const int64_t total_steps, Number(file, path, "total_steps"));
  SavedModel saved;
  ABSL_ASSIGN_OR_RETURN(saved.step, Number(file, path, "step"));
  if (tokens != "gpt2" && tokens != "gpt2_bytes") {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its metadata says tokens=", tokens, "; gpt2, gpt2_bytes are known"));
  }
  if (tokens == "gpt2_bytes") saved.token_map = data::TokenMap::ByteVocabulary();
  ABSL_ASSIGN_OR_RETURN(saved.recipe, FindRecipe(record, preset, vocab_size));
  if (file.metadata.count("extension_steps") != 0) {
    ABSL_ASSIGN_OR_RETURN(saved.extension_steps, Number(file, path, "extension_steps"));
    if (saved.extension_steps > total_steps) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its metadata says extension_steps=", saved.extension_steps,
                       ", more than total_steps=", total_steps));
    }
  }
  saved.recipe.schedules =
      sched::Rescaled(saved.recipe.schedules, total_steps, {.extension = saved.extension_steps});
  // Files older than the key are all of the recipes' own rule.
  const auto extension = file.metadata.find("schedule_extension");
  if (extension != file.metadata.end() && extension->second == "legacy") {
    sched::UseLegacyExtension(&saved.recipe.schedules);
  }
  ABSL_ASSIGN_OR_RETURN(saved.weights,
                        model::ParameterArena::Create(saved.recipe.model, 0, backend));
  ABSL_RETURN_IF_ERROR(WeightsFromHost(file.tensors, path, saved.weights->parameters(), queue));
  return saved;
}

}  // namespace tools
