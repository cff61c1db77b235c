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
#include "tools/trainer/track_flags.h"

// Those that mean what they mean in training.
#define TRAINING_FLAGS(ROW)                                                             \
  FLAG_preset(ROW) FLAG_val_files(ROW) FLAG_batch_tokens(ROW) FLAG_max_seq_len(ROW)     \
      FLAG_slots(ROW) FLAG_slots_per_pass(ROW) FLAG_deterministic(ROW) FLAG_device(ROW) \
          FLAG_threads(ROW)
TRAINING_FLAGS(DEFINE_FLAG)

ABSL_FLAG(std::string, record, "unified_optimizers", "Which record's step.");
ABSL_FLAG(std::string, train_files, "",
          "Globs of training shards, separated by commas. Empty: as in training; where that finds "
          "none, random tokens in documents of 600 tokens on average.");
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
#define COPY_FLAG(type, name, ...) options.flags.name = absl::GetFlag(FLAGS_##name);
  TRAINING_FLAGS(COPY_FLAG)
#undef COPY_FLAG
  options.flags.record = absl::GetFlag(FLAGS_record);
  options.flags.train_files = absl::GetFlag(FLAGS_train_files);
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
