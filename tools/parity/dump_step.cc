// Writes losses and gradients of training's first batches, and optimizer updates from them, to a
// safetensors file. See README.md beside this file and step_dump.h.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "data/shard.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/command_line.h"
#include "tools/output_files.h"
#include "tools/parity/step_dump.h"
#include "tools/recipes/recipe.h"
#include "tools/trainer/device.h"
#include "tools/trainer/track_flags.h"
#include "tools/trainer/train_config.h"

// Those that mean what they mean in training.
FLAG_batch_tokens(DEFINE_FLAG) FLAG_slots(DEFINE_FLAG) FLAG_max_seq_len(DEFINE_FLAG)
    FLAG_threads(DEFINE_FLAG) FLAG_init_from(DEFINE_FLAG)

        ABSL_FLAG(std::string, record, "muon_custom_sizing", "Which record.");
ABSL_FLAG(std::string, preset, "full", "full or demo.");
ABSL_FLAG(std::string, train_files, "", "Globs of GPT-2 token shards, separated by commas.");
ABSL_FLAG(std::string, out, "", "File to write.");
ABSL_FLAG(bool, overwrite, false, "Replace the file that --out names, if it is there.");
ABSL_FLAG(std::string, backend, "cpu", "cpu, or cuda in a build with --config=cuda.");
ABSL_FLAG(int64_t, slots_per_pass, 1, "Slots that run at once.");
ABSL_FLAG(int64_t, steps, -1, "Steps of the run that the schedules are of. -1: the recipe's.");
ABSL_FLAG(int64_t, schedule_step, 0, "The step whose windows and rates are used.");
ABSL_FLAG(int64_t, batches, 1, "Global batches, all at the weights of --init_from.");
ABSL_FLAG(bool, update, false, "Also one optimizer update per batch from these gradients.");

namespace tools {
namespace {

absl::StatusOr<TrainConfig> ConfigFromFlags() {
  TrainConfig config;
  ABSL_ASSIGN_OR_RETURN(config.recipe,
                        FindRecipe(absl::GetFlag(FLAGS_record), absl::GetFlag(FLAGS_preset),
                                   PaddedVocab(data::kGpt2Vocabulary)));
  sched::Schedules& schedules = config.recipe.schedules;
  if (absl::GetFlag(FLAGS_steps) > 0) {
    Rescale(&config.recipe, absl::GetFlag(FLAGS_steps));
  }
  const int64_t batch_tokens = absl::GetFlag(FLAGS_batch_tokens);
  if (batch_tokens > 0) {
    for (sched::BatchStage& stage : schedules.batch.stages) stage.tokens = batch_tokens;
  }
  DataRule& rule = config.recipe.data;
  if (absl::GetFlag(FLAGS_slots) > 0) rule.slots = static_cast<int>(absl::GetFlag(FLAGS_slots));
  if (absl::GetFlag(FLAGS_max_seq_len) > 0) rule.max_doc_len = absl::GetFlag(FLAGS_max_seq_len);
  const int64_t tokens = schedules.batch.stages.front().tokens;
  if (tokens % (16 * rule.slots) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch_tokens=", tokens, ": must be a multiple of ", 16 * rule.slots,
                     ", 16 tokens in each of ", rule.slots, " slots"));
  }
  ABSL_ASSIGN_OR_RETURN(config.train_files, data::ListShards(absl::GetFlag(FLAGS_train_files)));
  config.token_map = data::TokenMap::Identity(data::kGpt2Vocabulary);
  config.slots_per_pass = static_cast<int>(absl::GetFlag(FLAGS_slots_per_pass));
  config.init_from = absl::GetFlag(FLAGS_init_from);
  return config;
}

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_backend).empty()) {
    return absl::InvalidArgumentError("--backend=: must be cpu or cuda");
  }
  for (const auto* flag : {&FLAGS_init_from, &FLAGS_train_files, &FLAGS_out}) {
    if (absl::GetFlag(*flag).empty()) {
      return absl::InvalidArgumentError("give --init_from, --train_files and --out");
    }
  }
  for (const auto* flag : {&FLAGS_slots_per_pass, &FLAGS_batches}) {
    if (absl::GetFlag(*flag) < 1 || absl::GetFlag(*flag) > 4096) {
      return absl::InvalidArgumentError("--slots_per_pass and --batches must be from 1 to 4096");
    }
  }
  if (absl::GetFlag(FLAGS_schedule_step) < 0) {
    return absl::InvalidArgumentError("--schedule_step must not be negative");
  }
  return CheckOutputFiles({{"out", absl::GetFlag(FLAGS_out)}}, absl::GetFlag(FLAGS_overwrite));
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  ABSL_RETURN_IF_ERROR(CheckFlags());
  ABSL_ASSIGN_OR_RETURN(const TrainConfig config, ConfigFromFlags());
  const StepDumpOptions options{.schedule_step = absl::GetFlag(FLAGS_schedule_step),
                                .batches = static_cast<int>(absl::GetFlag(FLAGS_batches)),
                                .update = absl::GetFlag(FLAGS_update)};
  ABSL_ASSIGN_OR_RETURN(const Device device,
                        OpenDevice(absl::GetFlag(FLAGS_backend), /*index=*/0, "backend"));
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Queue> queue,
      device.make_queue(
          {.threads = static_cast<int>(absl::GetFlag(FLAGS_threads)), .deterministic = true}));
  ABSL_ASSIGN_OR_RETURN(SafetensorsFile file, DumpStep(config, options, *device.backend, *queue));
  file.metadata["backend"] = absl::GetFlag(FLAGS_backend);
  return WriteSafetensors(absl::GetFlag(FLAGS_out), file);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "dump_step",
      .summary = "writes losses, gradients and updates of training's first batches.",
      .usage = "bazel run //tools/parity:dump_step -- [flags]",
      .examples = {{"two batches' gradients, and the updates from them",
                    "bazel run //tools/parity:dump_step -- --init_from=INIT.safetensors "
                    "--train_files='SHARDS' --out=STEP.safetensors --batches=2 --update"}},
      .groups = {
          {"Model", {"record", "preset", "init_from"}},
          {"Data", {"train_files", "batch_tokens", "slots", "max_seq_len", "batches"}},
          {"Schedules", {"steps", "schedule_step", "update"}},
          {"Machine and output", {"backend", "slots_per_pass", "threads", "out", "overwrite"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
