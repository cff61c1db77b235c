// Writes what our forward pass makes of some tokens, to compare an export with: see verify_hf.py.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/command_line.h"
#include "tools/export_hf/own_logits.h"
#include "tools/output_files.h"
#include "tools/sample/saved_model.h"
#include "tools/trainer/device.h"

ABSL_FLAG(std::string, model, "",
          "An --out_dir, a checkpoint's folder, or a model.safetensors that the trainer wrote.");
ABSL_FLAG(std::string, tokens, "", "Safetensors file with `tokens`, i32 [T].");
ABSL_FLAG(std::string, out, "", "Safetensors file to write: `logits`, f32 [T, V].");
ABSL_FLAG(bool, overwrite, false, "Replace the file that --out names, if it is there.");
ABSL_FLAG(std::string, device, "", "cpu or cuda. Empty: cuda in a build with it, else cpu.");

namespace tools {
namespace {

absl::StatusOr<std::vector<int32_t>> ReadTokens(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(path));
  const auto found = file.tensors.find("tokens");
  if (found == file.tensors.end() || found->second.dtype != kernels::DType::kI32 ||
      found->second.shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no `tokens`, i32 [T]"));
  }
  std::vector<int32_t> tokens(found->second.shape[0]);
  std::memcpy(tokens.data(), found->second.bytes.data(), found->second.bytes.size());
  return tokens;
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  const std::string model = absl::GetFlag(FLAGS_model), tokens_path = absl::GetFlag(FLAGS_tokens),
                    out = absl::GetFlag(FLAGS_out);
  if (model.empty() || tokens_path.empty() || out.empty()) {
    return absl::InvalidArgumentError("--model, --tokens, --out: give all three");
  }
  ABSL_RETURN_IF_ERROR(CheckOutputFiles({{"out", out}}, absl::GetFlag(FLAGS_overwrite)));
  ABSL_ASSIGN_OR_RETURN(const Device device, OpenDevice(absl::GetFlag(FLAGS_device)));
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Queue> queue, device.make_queue({}));
  ABSL_ASSIGN_OR_RETURN(const SavedModel saved, LoadSavedModel(model, *device.backend, *queue));
  ABSL_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, ReadTokens(tokens_path));
  SafetensorsFile file;
  ABSL_ASSIGN_OR_RETURN(file.tensors["logits"], OwnLogits(saved, tokens, *device.backend, *queue));
  return WriteSafetensors(out, file);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "dump_logits",
      .summary = "writes a model's logits of given tokens.",
      .usage =
          "bazel run //tools/export_hf:dump_logits -- --model=OUT_DIR --tokens=FILE --out=FILE",
      .examples = {{"before verify_hf.py",
                    "bazel run //tools/export_hf:dump_logits -- --model=OUT_DIR "
                    "--tokens=tokens.safetensors --out=logits.safetensors"}},
      .groups = {{"Files", {"model", "tokens", "out", "overwrite"}}, {"Machine", {"device"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
