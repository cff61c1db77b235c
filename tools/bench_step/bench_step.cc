// Times a training step and says where the time goes, against what the device can do.
//
//   bazel run --config=cuda //tools/bench_step -- --slots_per_pass=4
//
// The steps are training's own: Train() runs, first untraced for the true step time, then a few
// traced ones, op by op, for the tables.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/bench_step/bench.h"
#include "tools/command_line.h"
#include "tools/composition.h"
#include "tools/output_files.h"

ABSL_FLAG(std::string, record, "unified_optimizers", "Which record's step.");
ABSL_FLAG(std::string, preset, "",
          "full: the record's model. demo: the same at a size for a CPU. Empty: full on a GPU, "
          "otherwise demo.");
ABSL_FLAG(std::string, train_files, "",
          "Globs of training shards, separated by commas. Empty: as in training; where that finds "
          "none, random tokens in documents of 600 tokens on average.");
ABSL_FLAG(std::string, val_files, "", "Globs of validation shards; as --train_files.");
ABSL_FLAG(int64_t, batch_tokens, 0, "Tokens of a global batch. 0: the recipe's.");
ABSL_FLAG(int64_t, max_seq_len, 0, "Tokens used of one document. 0: the recipe's.");
ABSL_FLAG(int64_t, slots, 0, "Equal parts of a global batch. 0: the recipe's.");
ABSL_FLAG(int64_t, slots_per_pass, 0, "Slots run at once. 0: two on a GPU, else one.");
ABSL_FLAG(bool, deterministic, false, "As in training.");
ABSL_FLAG(std::string, device, "", "cpu or cuda. Empty: the best that this program has.");
ABSL_FLAG(int64_t, threads, 0, "CPU threads for the ops. 0: one per CPU that the process may use.");
ABSL_FLAG(int64_t, stage, 1, "Stage of the schedules: batch size, windows, targets. From 1 on.");
ABSL_FLAG(int64_t, window_blocks, 0, "The long attention window in blocks. 0: the stage's.");
ABSL_FLAG(int64_t, warmup_steps, 3, "Steps before the timed ones.");
ABSL_FLAG(int64_t, steps, 10, "Steps timed untraced.");
ABSL_FLAG(int64_t, trace_steps, 3, "Steps traced after them.");
ABSL_FLAG(std::string, trace, "", "Also write the traced steps as a Perfetto trace to this file.");
ABSL_FLAG(bool, overwrite, false, "Replace the file that --trace names, if it is there.");

namespace tools {
namespace {

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  BenchOptions options;
  options.flags.record = absl::GetFlag(FLAGS_record);
  options.flags.preset = absl::GetFlag(FLAGS_preset);
  options.flags.train_files = absl::GetFlag(FLAGS_train_files);
  options.flags.val_files = absl::GetFlag(FLAGS_val_files);
  options.flags.batch_tokens = absl::GetFlag(FLAGS_batch_tokens);
  options.flags.max_seq_len = absl::GetFlag(FLAGS_max_seq_len);
  options.flags.slots = absl::GetFlag(FLAGS_slots);
  options.flags.slots_per_pass = absl::GetFlag(FLAGS_slots_per_pass);
  options.flags.deterministic = absl::GetFlag(FLAGS_deterministic);
  options.flags.device = absl::GetFlag(FLAGS_device);
  options.flags.threads = absl::GetFlag(FLAGS_threads);
  options.stage = absl::GetFlag(FLAGS_stage);
  options.window_blocks = absl::GetFlag(FLAGS_window_blocks);
  options.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  options.timed_steps = absl::GetFlag(FLAGS_steps);
  options.trace_steps = absl::GetFlag(FLAGS_trace_steps);
  options.trace = absl::GetFlag(FLAGS_trace);
  ABSL_RETURN_IF_ERROR(
      CheckOutputFiles({{"trace", options.trace}}, absl::GetFlag(FLAGS_overwrite)));
  ABSL_ASSIGN_OR_RETURN(const std::string report, BenchReport(options));
  std::fputs(CompositionText("bench_step").c_str(), stdout);
  std::fputs(absl::StrCat("\n", report).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "bench_step",
      .summary = "times a training step, phase by phase, against what the device can do.",
      .usage = "bazel run [--config=cuda] //tools/bench_step -- [flags]",
      .examples = {{"the record's step on a GPU",
                    "bazel run --config=cuda //tools/bench_step -- --record=unified_optimizers"},
                   {"the last stage of its schedules",
                    "bazel run --config=cuda //tools/bench_step -- --stage=3"}},
      .groups = {{"Step", {"record", "preset", "stage", "window_blocks", "deterministic"}},
                 {"Data", {"train_files", "val_files", "batch_tokens", "max_seq_len", "slots"}},
                 {"Machine", {"device", "slots_per_pass", "threads"}},
                 {"Measurement", {"warmup_steps", "steps", "trace_steps", "trace", "overwrite"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
