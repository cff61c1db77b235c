// Exports a trained model as a folder that transformers loads, and imports such a folder.
//
//   bazel run //tools/export_hf -- --model=OUT_DIR --out=FOLDER --merges=vocab.bpe
//   bazel run //tools/export_hf -- --import=FOLDER --out=model.safetensors
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/export_hf/export_model.h"
#include "tools/sample/saved_model.h"

ABSL_FLAG(std::string, model, "",
          "What to export: an --out_dir, a checkpoint's folder, or a model.safetensors that the "
          "trainer wrote.");
ABSL_FLAG(std::string, import, "",
          "What to import: a folder that --model or save_pretrained wrote.");
ABSL_FLAG(std::string, out, "", "The folder (of --import: the file) to write.");
ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocab.bpe, to export the tokenizer as well. Models of byte tokens need none.");
ABSL_FLAG(bool, round, false,
          "Of --import: weights in a wider dtype than the model's become the nearest value; "
          "without, this is an error.");
ABSL_FLAG(bool, overwrite, false, "Replace an export (of --import: a file) that is there.");

namespace tools {
namespace {

absl::Status Export() {
  if (absl::GetFlag(FLAGS_round)) {
    return absl::InvalidArgumentError("--round is of --import; an export changes no weight");
  }
  ABSL_RETURN_IF_ERROR(kernels::CheckCpuBackend());
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue();
  ABSL_ASSIGN_OR_RETURN(const SavedModel saved,
                        LoadSavedModel(absl::GetFlag(FLAGS_model), kernels::CpuBackend(), *queue));
  const ExportOptions options = {.out = absl::GetFlag(FLAGS_out),
                                 .merges = absl::GetFlag(FLAGS_merges),
                                 .overwrite = absl::GetFlag(FLAGS_overwrite)};
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExportModel(saved, options, *queue));
  std::printf("%s, preset %s, step %lld: wrote %s to %s\n", saved.recipe.record.c_str(),
              saved.recipe.preset.c_str(), static_cast<long long>(saved.step),
              absl::StrJoin(files, ", ").c_str(), options.out.c_str());
  if (saved.token_map.is_identity() && options.merges.empty()) {
    std::fputs("export_hf: no tokenizer was written; give --merges=vocab.bpe to have one\n",
               stderr);
  }
  return absl::OkStatus();
}

absl::Status Import() {
  if (!absl::GetFlag(FLAGS_merges).empty()) {
    return absl::InvalidArgumentError("--merges is of --model; an import has no tokenizer");
  }
  const ImportOptions options = {.folder = absl::GetFlag(FLAGS_import),
                                 .out = absl::GetFlag(FLAGS_out),
                                 .round = absl::GetFlag(FLAGS_round),
                                 .overwrite = absl::GetFlag(FLAGS_overwrite)};
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> converted, ImportModel(options));
  for (const std::string& line : converted) std::fprintf(stderr, "export_hf: %s\n", line.c_str());
  std::printf("wrote %s\n", options.out.c_str());
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  const bool exports = !absl::GetFlag(FLAGS_model).empty();
  if (exports == !absl::GetFlag(FLAGS_import).empty()) {
    return absl::InvalidArgumentError(
        "give --model, an --out_dir to export, or --import, a folder to import; not both");
  }
  if (absl::GetFlag(FLAGS_out).empty()) {
    return absl::InvalidArgumentError("--out: give the folder or file to write");
  }
  return exports ? Export() : Import();
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "export_hf",
      .summary =
          "exports a trained model as a folder that transformers loads, and imports such "
          "a folder.",
      .usage = "bazel run //tools/export_hf -- --model=OUT_DIR --out=FOLDER [flags]",
      .examples = {{"a folder for AutoModelForCausalLM and AutoTokenizer",
                    "bazel run //tools/export_hf -- --model=OUT_DIR --out=FOLDER "
                    "--merges=vocab.bpe"},
                   {"back to what --init_from takes",
                    "bazel run //tools/export_hf -- --import=FOLDER --out=model.safetensors"}},
      .groups = {{"What", {"model", "import"}},
                 {"Output", {"out", "merges", "round", "overwrite"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
