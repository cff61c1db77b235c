#include "tools/bench_step/bench.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/shard.h"
#include "kernels/queue.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/bench_step/ceilings.h"
#include "tools/bench_step/step_table.h"
#include "tools/bench_step/synthetic_tokens.h"
#include "tools/bench_step/temporary_folder.h"
#include "tools/checkpoint/files.h"
#include "tools/trainer/device.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/train.h"

namespace tools {
namespace {

// Validation is no part of a step: as little as the recipe's slot allows.
constexpr int64_t kValTokens = 4096;

// The time of a step ends when its loss is read, on a GPU while the next one is being enqueued:
// the last timed step is followed by one that is not traced.
constexpr int64_t kBetween = 1;

absl::Status CheckRanges(const BenchOptions& options) {
  const struct {
    const char* flag;
    int64_t value, low;
  } ranges[] = {{"warmup_steps", options.warmup_steps, 1},
                {"steps", options.timed_steps, 1},
                {"trace_steps", options.trace_steps, 1},
                {"stage", options.stage, 1},
                {"window_blocks", options.window_blocks, 0}};
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= 1'000'000) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", range.flag, "=", range.value,
                                                   ": must be from ", range.low, " to 1000000"));
  }
  return absl::OkStatus();
}

int64_t TotalSteps(const BenchOptions& options) {
  return options.warmup_steps + options.timed_steps + kBetween + options.trace_steps;
}

// Shards of random tokens for `batches` batches of `batch_tokens`, and the flags that name them.
absl::Status WriteSyntheticShards(const std::string& folder, int64_t batches, int64_t batch_tokens,
                                  TrackFlags* flags) {
  flags->train_files = folder + "/train.bin";
  flags->val_files = folder + "/val.bin";
  // Half as much again as the batches hold: documents are cut at the ends of slots.
  const int64_t train_tokens = batches * batch_tokens * 3 / 2 + 100'000;
  ABSL_RETURN_IF_ERROR(data::WriteShard(flags->train_files, SyntheticDocuments(train_tokens, 1)));
  return data::WriteShard(flags->val_files, SyntheticDocuments(4 * kValTokens, 2));
}

// The run's schedules as they are all through its stage `stage`: batch size, windows, which tokens
// ahead are learnt, tied or not.
absl::Status KeepToStage(const BenchOptions& options, sched::Schedules* schedules) {
  const auto& batches = schedules->batch.stages;
  const auto stages =
      static_cast<int64_t>(std::max(batches.size(), schedules->window.long_blocks.size()));
  if (options.stage > stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stage=", options.stage, ": this record has ", stages));
  }
  const auto nth = [&](const auto& of) {
    return of[std::min<size_t>(options.stage, of.size()) - 1];
  };
  const int64_t last_step = schedules->run.scheduled_steps * options.stage / stages - 1;
  const bool tied =
      sched::IsTied(schedules->tying, schedules->run, std::max<int64_t>(0, last_step));
  schedules->tying.fraction = tied ? 1 : 0;
  schedules->batch.stages = {{.fraction = 1, .tokens = nth(batches).tokens}};
  if (schedules->window.grow_to_tokens > 0) {  // it begins with one block and grows to these
    schedules->window.grow_to_tokens =
        std::max<int64_t>(1, options.window_blocks) * schedules->window.block_tokens;
  }
  const int blocks = nth(schedules->window.long_blocks);
  schedules->window.long_blocks = {
      options.window_blocks > 0 ? static_cast<int>(options.window_blocks) : blocks};
  schedules->window.part_ends.clear();
  schedules->window.final_in_extension = false;  // one window for all steps
  sched::MultiTokenSchedule& ahead = schedules->multi_token;
  std::erase_if(ahead.farther, [&](const sched::FartherToken& token) {
    return token.fades_in < options.stage - 1;
  });
  ahead.parts = 1;
  ahead.part_ends.clear();
  for (sched::FartherToken& token : ahead.farther) token.fades_in = 0;
  return sched::Validate(*schedules);
}

// Of the bench's own schedule.
std::string WindowText(const sched::WindowSchedule& window) {
  if (window.grow_to_tokens > window.block_tokens) {
    return absl::StrCat("growing in these steps from ", window.block_tokens, " to ",
                        window.grow_to_tokens);
  }
  return absl::StrCat(window.grow_to_tokens > 0 ? window.block_tokens
                                                : window.long_blocks.front() * window.block_tokens);
}

absl::StatusOr<Configured> Prepare(const BenchOptions& options, const Device& device,
                                   const std::string& folder) {
  TrackFlags flags = options.flags;
  if (flags.preset.empty()) flags.preset = device.kind == "cpu" ? "demo" : "full";
  flags.steps = TotalSteps(options);
  flags.val_tokens = kValTokens;
  flags.val_every = std::numeric_limits<int32_t>::max();
  flags.metrics = folder + "/metrics.jsonl";
  absl::StatusOr<Configured> configured = Configure(flags);
  if (absl::IsNotFound(configured.status()) && flags.train_files.empty()) {
    ABSL_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(flags.record, flags.preset,
                                                          PaddedVocab(data::kGpt2Vocabulary)));
    int64_t batch_tokens = flags.batch_tokens;
    if (batch_tokens == 0) {  // of the largest stage, which need not be the last
      for (const auto& stage : recipe.schedules.batch.stages) {
        batch_tokens = std::max<int64_t>(batch_tokens, stage.tokens);
      }
    }
    ABSL_RETURN_IF_ERROR(WriteSyntheticShards(folder, flags.steps, batch_tokens, &flags));
    configured = Configure(flags);
    if (configured.ok()) absl::StrAppend(&configured->notes, "\nsynthetic tokens");
  }
  if (!configured.ok()) return configured.status();
  // As many slots a pass as the whole run has in that stage.
  TrainConfig& config = configured->config;
  const TrainConfig whole = config;
  ABSL_RETURN_IF_ERROR(KeepToStage(options, &config.recipe.schedules));
  config.slots_per_pass = whole.pass_slots(config.slot_tokens(0), config.recipe.data.slots);
  return *std::move(configured);
}

// step_ms of the steps in [begin, end), counted from 0, as the metrics file has them.
absl::StatusOr<std::vector<double>> StepTimes(const std::string& metrics, int64_t begin,
                                              int64_t end) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(metrics));
  std::vector<double> times;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = text.find('\n', at);
    const nlohmann::json row = nlohmann::json::parse(text.substr(at, line_end - at), nullptr,
                                                     /*allow_exceptions=*/false);
    if (line_end == std::string::npos || !row.is_object()) {
      return absl::DataLossError(absl::StrCat(metrics, ": not one JSON object a line"));
    }
    at = line_end + 1;
    if (!row.contains("step_ms")) continue;  // a validation
    const int64_t step = row["step"].get<int64_t>() - 1;
    if (step >= begin && step < end) times.push_back(row["step_ms"].get<double>());
  }
  return times;
}

absl::StatusOr<Ceilings> MeasureOn(const Device& device, int threads) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Queue> queue,
                        device.make_queue({.threads = threads, .deterministic = false}));
  return MeasureCeilings(*device.backend, *queue);
}

}  // namespace

absl::StatusOr<std::string> BenchReport(const BenchOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckRanges(options));
  ABSL_ASSIGN_OR_RETURN(const Device device, OpenDevice(options.flags.device));
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  ABSL_ASSIGN_OR_RETURN(const Configured configured, Prepare(options, device, folder->path()));
  const TrainConfig& config = configured.config;
  ABSL_ASSIGN_OR_RETURN(const Ceilings ceilings, MeasureOn(device, config.threads));

  const int64_t untraced = options.warmup_steps + options.timed_steps;
  RunTrace trace({.skip = untraced + kBetween, .steps = options.trace_steps});
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunLog> log,
      RunLog::Create(config.metrics, /*append=*/false, config.total_steps(), stderr));
  TimedSteps timed;
  const auto note_memory = [&timed](const TrainedModel& trained) {
    timed.memory_bytes = trained.memory_bytes;
    return absl::OkStatus();
  };
  ABSL_RETURN_IF_ERROR(Train(config, *log, note_memory, &trace));
  ABSL_RETURN_IF_ERROR(log->Close());
  if (!options.trace.empty()) ABSL_RETURN_IF_ERROR(trace.Write(options.trace));

  const std::vector<TracedStep> steps = trace.steps();
  ABSL_ASSIGN_OR_RETURN(timed.step_ms, StepTimes(config.metrics, options.warmup_steps, untraced));
  timed.batch_tokens = config.recipe.schedules.batch.stages.front().tokens;
  timed.flops = StepFlops(steps);
  return absl::StrCat(device.description, "\n", configured.notes, "\nstage ", options.stage, ": ",
                      timed.batch_tokens, " tokens, ",
                      config.pass_slots(config.slot_tokens(0), config.recipe.data.slots),
                      " slots a pass, long window ", WindowText(config.recipe.schedules.window),
                      " tokens\n\nCeilings: ", ceilings.how, "\n\n", StepText(timed, ceilings),
                      "\nTraced steps, op by op, mean of ", steps.size(), "\n\n",
                      PhaseTable(steps, ceilings), "\nBy op and shape, the greatest loss first\n\n",
                      OpTable(steps, ceilings));
}

}  // namespace tools
