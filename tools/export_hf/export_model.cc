#include "tools/export_hf/export_model.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/export_hf/hf_config.h"
#include "tools/export_hf/modeling_files.h"
#include "tools/export_hf/tokenizer_files.h"
#include "tools/trainer/weights.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

bool IsExport(const fs::path& folder) {
  const absl::StatusOr<std::string> config = ReadFile((folder / "config.json").string());
  return config.ok() && ParseHfConfig(*config, "").ok();
}

absl::Status CheckFree(const fs::path& out, bool overwrite) {
  std::error_code error;
  if (!fs::exists(out, error)) return absl::OkStatus();
  const std::string where = absl::StrCat("--out=", out.string(), ": ");
  if (!fs::is_directory(out, error)) {
    return absl::InvalidArgumentError(absl::StrCat(where, "is no folder; give another name"));
  }
  if (fs::is_empty(out, error)) return absl::OkStatus();
  if (!overwrite) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "is not empty; give another folder, or --overwrite for an export"));
  }
  if (IsExport(out)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where,
                   "is not empty and no export of this program, so --overwrite does not "
                   "replace it; give another folder"));
}

std::string ModelCard(const SavedModel& saved, bool has_tokenizer) {
  const Recipe& recipe = saved.recipe;
  return absl::StrFormat(
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n"
      "# %s, %s\n\n"
      "A GPT trained by nanospeed along a record of the NanoGPT speedrun (%s): %d of %d steps.\n\n"
      "```python\nfrom transformers import AutoModelForCausalLM%s\n\n"
      "model = AutoModelForCausalLM.from_pretrained(\"FOLDER\", trust_remote_code=True)\n%s```\n\n"
      "- Loaded as above everything is float32, with the weights of the checkpoint. With\n"
      "  `dtype=torch.bfloat16` it rounds where training rounds.\n"
      "- The head is that of validation: training's multiplies fp8 values in some records.\n"
      "- A document begins with token %d, and so should every prompt%s.\n"
      "- There is no cache of keys and values: generation costs the square of the length.\n"
      "- Logits from id %d on belong to no token.\n",
      recipe.record, recipe.preset, recipe.source, saved.step, recipe.schedules.run.total(),
      has_tokenizer ? ", AutoTokenizer" : "",
      has_tokenizer
          ? "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\", trust_remote_code=True)\n"
            "prompt = tokenizer(\"The \", return_tensors=\"pt\")\n"
            "print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50)[0]))\n"
          : "",
      saved.token_map.bos(), has_tokenizer ? "; the tokenizer puts it there" : "",
      saved.token_map.vocab_size());
}

using Texts = std::vector<std::pair<std::string, std::string>>;  // name, content

absl::Status AddTokenizer(const SavedModel& saved, const std::string& merges, Texts* files) {
  if (saved.token_map.is_identity()) {
    if (merges.empty()) return absl::OkStatus();
    ABSL_ASSIGN_OR_RETURN(std::string tokenizer, Gpt2TokenizerJson(merges));
    files->emplace_back("tokenizer.json", std::move(tokenizer));
  } else if (merges.empty()) {
    files->emplace_back("tokenizer.json", ByteTokenizerJson());
  } else {
    return absl::InvalidArgumentError(
        "--merges: this model's tokens are single bytes, and its tokenizer is written anyway; "
        "leave the flag out");
  }
  files->emplace_back("tokenizer_config.json", TokenizerConfigJson());
  return absl::OkStatus();
}

absl::Status WriteAll(const fs::path& folder, const Texts& texts, const SafetensorsFile& weights) {
  for (const auto& [name, text] : texts) {
    ABSL_RETURN_IF_ERROR(WriteFileAtomically((folder / name).string(), {text}));
  }
  return WriteSafetensors((folder / "model.safetensors").string(), weights);
}

// `from` under the name `to`, whose place an export or an empty folder may have.
absl::Status Replace(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const bool in_the_way = fs::exists(to, error) && !fs::is_empty(to, error);
  const fs::path old = absl::StrCat(to.string(), ".", getpid(), ".old");
  if (in_the_way) fs::rename(to, old, error);
  if (!error) fs::rename(from, to, error);
  if (error) {
    std::error_code ignored;
    if (in_the_way && !fs::exists(to, ignored)) fs::rename(old, to, ignored);
    return absl::UnavailableError(
        absl::StrCat("--out=", to.string(), ": cannot put the export there: ", error.message()));
  }
  if (in_the_way) fs::remove_all(old, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(to.string(), " is written, but ", old.string(),
                                             " cannot be removed: ", error.message()));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExportModel(const SavedModel& saved,
                                                     const ExportOptions& options,
                                                     kernels::Queue& queue) {
  std::error_code error;
  fs::path out = fs::absolute(options.out, error).lexically_normal();
  if (!out.has_filename()) out = out.parent_path();  // "folder/"
  ABSL_RETURN_IF_ERROR(CheckFree(out, options.overwrite));
  Texts files = {{"config.json", HfConfigJson(saved)},
                 {"generation_config.json", HfGenerationConfigJson(saved)},
                 {"configuration_nanospeed.py", std::string(kConfigurationFile)},
                 {"modeling_nanospeed.py", std::string(kModelingFile)}};
  const size_t without_tokenizer = files.size();
  ABSL_RETURN_IF_ERROR(AddTokenizer(saved, options.merges, &files));
  files.emplace_back("README.md", ModelCard(saved, files.size() > without_tokenizer));
  SafetensorsFile weights;
  weights.tensors = WeightsToHost(saved.weights->parameters(), queue);
  weights.metadata = SourceOf(saved);

  const fs::path temporary = absl::StrCat(out.string(), ".", getpid(), ".tmp");
  fs::create_directories(temporary, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--out=", options.out, ": cannot create ",
                                                   temporary.string(), ": ", error.message()));
  }
  absl::Status status = WriteAll(temporary, files, weights);
  if (status.ok()) status = Replace(temporary, out);
  if (status.ok()) status = SyncFolder(out.parent_path().string());
  fs::remove_all(temporary, error);
  ABSL_RETURN_IF_ERROR(status);
  std::vector<std::string> names = {"model.safetensors"};
  for (const auto& [name, text] : files) names.push_back(name);
  return names;
}

}  // namespace tools
