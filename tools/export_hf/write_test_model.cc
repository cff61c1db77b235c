// Writes a test model: see test_model.h and verify_hf.py.
//
//   bazel run //tools/export_hf:write_test_model -- --record=record7 --out=model.safetensors
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/command_line.h"
#include "tools/export_hf/test_model.h"
#include "tools/output_files.h"
#include "tools/recipes/recipe.h"

ABSL_FLAG(std::string, record, "unified_optimizers", "Whose layers the model has.");
ABSL_FLAG(std::string, out, "", "The file to write.");
ABSL_FLAG(bool, overwrite, false, "Replace the file that --out names, if it is there.");

namespace tools {
namespace {

absl::Status Run(const std::vector<std::string>& arguments) {
  if (const absl::Status none = NoArguments(arguments); !none.ok()) return none;
  const std::string record = absl::GetFlag(FLAGS_record), out = absl::GetFlag(FLAGS_out);
  const absl::Status known = FindRecipe(record, "demo", 384).status();
  if (!known.ok()) return known;
  if (out.empty()) return absl::InvalidArgumentError("--out: give the file to write");
  const absl::Status checked = CheckOutputFiles({{"out", out}}, absl::GetFlag(FLAGS_overwrite));
  if (!checked.ok()) return checked;
  return WriteSafetensors(out, TestModel(record));
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "write_test_model",
      .summary = "writes a small model of reproducible noise.",
      .usage = "bazel run //tools/export_hf:write_test_model -- --record=NAME --out=FILE",
      .examples = {{"a model of track 2",
                    "bazel run //tools/export_hf:write_test_model -- --record=record7 "
                    "--out=model.safetensors"}},
      .groups = {{"Model", {"record", "out", "overwrite"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
