#include "tools/track.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/composition.h"
#include "tools/output_files.h"
#include "tools/sample/demo_ending.h"
#include "tools/trainer/comm_plan_text.h"
#include "tools/trainer/configure.h"
#include "tools/trainer/interrupt.h"
#include "tools/trainer/plan_text.h"
#include "tools/trainer/ranks.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/train.h"

ABSL_FLAG(std::string, record, "",
          "Which record to train. Empty: unified_optimizers on track 1, record7 on track 2.");
ABSL_FLAG(std::string, preset, "",
          "full: the record's model and schedule. demo: the same code path at a size for a CPU. "
          "Empty: full on a GPU when shards are found, otherwise demo.");
ABSL_FLAG(std::string, train_files, "",
          "Globs of training shards, separated by commas. Empty: "
          "$DATA_PATH/data/fineweb10B/fineweb_train_*.bin if there are any; the demo has a corpus "
          "of its own.");
ABSL_FLAG(std::string, val_files, "", "Globs of validation shards; as --train_files.");
ABSL_FLAG(int64_t, steps, -1,
          "Optimizer steps; schedules rescale. -1: the recipe's; 0: validate and leave.");
ABSL_FLAG(int64_t, batch_tokens, 0, "Tokens of a global batch. 0: the recipe's.");
ABSL_FLAG(int64_t, max_seq_len, 0, "Tokens used of one document. 0: the recipe's.");
ABSL_FLAG(int64_t, val_tokens, 0, "Tokens of a validation. 0: the recipe's.");
ABSL_FLAG(int64_t, val_every, 0, "Steps between validations. 0: the recipe's.");
ABSL_FLAG(int64_t, extension_steps, -1,
          "Steps of --steps, the last ones, that train at the rate and windows reached. -1: the "
          "recipe's share.");
ABSL_FLAG(std::string, momentum_steps, "scaled",
          "scaled: momentum's warm-up and cooldown change with --steps. recipe: they stay the "
          "recipe's numbers of steps, as in the PyTorch original with another num_iterations.");
ABSL_FLAG(std::string, schedule_extension, "recipe",
          "recipe, or legacy: the rate falls to the last step and the last window waits for the "
          "last validation, as before the record of 2025-10-27. For comparison only.");
ABSL_FLAG(int64_t, slots, 0, "Equal parts of a global batch. 0: the recipe's.");
ABSL_FLAG(int64_t, slots_per_pass, 0,
          "Slots that a rank runs at once, of the largest that a run has; of smaller ones as many "
          "more as "
          "fit. 0: two on a GPU, else one.");
ABSL_FLAG(int64_t, epochs, 1, "How often the training shards may be used.");
ABSL_FLAG(int64_t, seed, 0, "Seed of the initial weights.");
ABSL_FLAG(
    double, matrix_lr_mul, 1,
    "Multiplies the learning rates of the hidden matrices, and leaves all others as they are.");
ABSL_FLAG(bool, deterministic, false,
          "Add slot gradients along a fixed tree: the same bits for every --world_size and "
          "--slots_per_pass (of records with banks one), at the price of memory and speed.");
ABSL_FLAG(
    int64_t, world_size, 0,
    "Ranks: threads of this process, or (--config=nccl) the processes that mpirun or torchrun "
    "started. 0: as many as were started, else one.");
ABSL_FLAG(std::string, device, "",
          "cpu or cuda. Empty: cuda in a build with --config=cuda, else cpu.");
ABSL_FLAG(
    double, memory_gib, 0,
    "GiB that a rank may plan on its device; a run that needs more is refused with what would "
    "fit. 0: as much as there is.");
ABSL_FLAG(int64_t, threads, 0, "CPU threads for the ops. 0: one per CPU that the process may use.");
ABSL_FLAG(std::string, init_from, "", "Safetensors file with the initial weights.");
ABSL_FLAG(std::string, save_init, "", "Where to write the initial weights.");
ABSL_FLAG(std::string, out_dir, "", "Folder of checkpoints. Empty: none are written.");
ABSL_FLAG(int64_t, checkpoint_every, 0,
          "Steps between checkpoints. 0: only at the end and when interrupted.");
ABSL_FLAG(int64_t, keep_checkpoints, 3, "How many checkpoints stay.");
ABSL_FLAG(bool, resume, false, "Go on from the latest checkpoint in --out_dir.");
ABSL_FLAG(
    std::string, on_nonfinite, "stop",
    "stop, or skip: what to do with a step whose loss or gradients are not finite. skip leaves "
    "its update out and says so, until there are more than 10 in a row; the host then waits "
    "for each step.");
ABSL_FLAG(std::string, metrics, "", "File of one JSON object a step.");
ABSL_FLAG(std::string, tensorboard_dir, "",
          "Folder for TensorBoard: a file of the same numbers. Empty: none is written.");
ABSL_FLAG(
    std::string, trace, "",
    "File for a Perfetto or Chrome trace of phases, collectives and ops. The traced steps run "
    "op by op.");
ABSL_FLAG(int64_t, trace_steps, 3, "Steps that are traced, from the second on.");
ABSL_FLAG(bool, overwrite, false,
          "Replace the files that --metrics, --trace and --save_init name, if they are there. A "
          "resumed run goes on in its metrics file, and the checkpoints of another run stay.");
ABSL_FLAG(bool, plan, false,
          "Print parameters, groups, padding, collectives, memory and FLOPs, then exit.");
ABSL_FLAG(std::string, card, "",
          "With --plan: the graphics card that the plan is for, such as h100-80gb; a wrong name "
          "lists them. Empty: the GPU that is here; h100-80gb where a build with --config=cuda "
          "finds none.");
ABSL_FLAG(int64_t, ranks, 0,
          "With --plan: predict what communication would cost on so many ranks.");
ABSL_FLAG(double, link_gbps, 0,
          "Of --ranks: 10^9 bits a second of a rank's link, in one direction.");
ABSL_FLAG(double, latency_us, 0, "Of --ranks: microseconds that a message takes at the least.");
ABSL_FLAG(std::string, link_shape, "ring", "Of --ranks: how collectives travel, ring or tree.");
ABSL_FLAG(std::string, phases, "",
          "Of --ranks: what is computed beside them, from a file that --trace wrote.");
ABSL_FLAG(double, tflops, 0, "Of --ranks: or at this many TFLOP/s, from the FLOPs.");
ABSL_FLAG(absl::Duration, comm_timeout, absl::Seconds(60),
          "How long a rank waits for the others: at the start, and in a collective. Then all ranks "
          "end with code 2 and a report of how far each of them is.");
ABSL_FLAG(bool, comm_check, false,
          "Compare order, label, dtype and count of the ranks' collectives before each (slower). "
          "The demo always does, and so do ranks that are threads.");
ABSL_FLAG(int64_t, sample_lines, 3, "Generated lines to print after a demo.");

namespace tools {
namespace {

TrackFlags FromCommandLine(const Track& track) {
  TrackFlags flags;
  flags.record = absl::GetFlag(FLAGS_record);
  if (flags.record.empty()) flags.record = track.record;
  flags.preset = absl::GetFlag(FLAGS_preset);
  flags.train_files = absl::GetFlag(FLAGS_train_files);
  flags.val_files = absl::GetFlag(FLAGS_val_files);
  flags.steps = absl::GetFlag(FLAGS_steps);
  flags.batch_tokens = absl::GetFlag(FLAGS_batch_tokens);
  flags.max_seq_len = absl::GetFlag(FLAGS_max_seq_len);
  flags.val_tokens = absl::GetFlag(FLAGS_val_tokens);
  flags.val_every = absl::GetFlag(FLAGS_val_every);
  flags.extension_steps = absl::GetFlag(FLAGS_extension_steps);
  flags.momentum_steps = absl::GetFlag(FLAGS_momentum_steps);
  flags.schedule_extension = absl::GetFlag(FLAGS_schedule_extension);
  flags.slots = absl::GetFlag(FLAGS_slots);
  flags.slots_per_pass = absl::GetFlag(FLAGS_slots_per_pass);
  flags.epochs = absl::GetFlag(FLAGS_epochs);
  flags.seed = absl::GetFlag(FLAGS_seed);
  flags.matrix_lr_mul = absl::GetFlag(FLAGS_matrix_lr_mul);
  flags.deterministic = absl::GetFlag(FLAGS_deterministic);
  flags.world_size = absl::GetFlag(FLAGS_world_size);
  flags.device = absl::GetFlag(FLAGS_device);
  flags.memory_gib = absl::GetFlag(FLAGS_memory_gib);
  flags.threads = absl::GetFlag(FLAGS_threads);
  flags.init_from = absl::GetFlag(FLAGS_init_from);
  flags.save_init = absl::GetFlag(FLAGS_save_init);
  flags.out_dir = absl::GetFlag(FLAGS_out_dir);
  flags.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
  flags.keep_checkpoints = absl::GetFlag(FLAGS_keep_checkpoints);
  flags.resume = absl::GetFlag(FLAGS_resume);
  flags.on_nonfinite = absl::GetFlag(FLAGS_on_nonfinite);
  flags.metrics = absl::GetFlag(FLAGS_metrics);
  flags.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  flags.comm_timeout = absl::GetFlag(FLAGS_comm_timeout);
  flags.comm_check = absl::GetFlag(FLAGS_comm_check);
  flags.plan = absl::GetFlag(FLAGS_plan);
  flags.card = absl::GetFlag(FLAGS_card);
  return flags;
}

// Empty without --ranks.
absl::StatusOr<std::string> SimulatedComm(const TrainConfig& config) {
  const CommPlanFlags flags{.ranks = absl::GetFlag(FLAGS_ranks),
                            .link_gbps = absl::GetFlag(FLAGS_link_gbps),
                            .latency_us = absl::GetFlag(FLAGS_latency_us),
                            .link_shape = absl::GetFlag(FLAGS_link_shape),
                            .phases = absl::GetFlag(FLAGS_phases),
                            .tflops = absl::GetFlag(FLAGS_tflops)};
  if (flags.ranks == 0) return "";
  ABSL_ASSIGN_OR_RETURN(const std::string text, CommPlanText(config, flags));
  return absl::StrCat("\n", text);
}

// Only for the process that writes the files: to others they may be there already.
absl::Status CheckOutputs(const TrainConfig& config) {
  const OutputFile metrics = {"metrics", config.metrics};
  std::vector<OutputFile> files = {{"trace", absl::GetFlag(FLAGS_trace)}};
  if (config.resume) {
    ABSL_RETURN_IF_ERROR(CheckMetricsToAppendTo(metrics));
  } else {
    files.push_back(metrics);
    files.push_back({"save_init", config.save_init});
  }
  return CheckOutputFiles(files, absl::GetFlag(FLAGS_overwrite));
}

// Null without --trace. Writes an empty trace, so that an unwritable file is found before training.
absl::StatusOr<std::unique_ptr<RunTrace>> MakeTrace() {
  const std::string path = absl::GetFlag(FLAGS_trace);
  const int64_t steps = absl::GetFlag(FLAGS_trace_steps);
  if (path.empty()) return nullptr;
  if (steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace_steps=", steps, ": must be at least 1"));
  }
  auto trace = std::make_unique<RunTrace>(TraceWindow{.skip = 1, .steps = steps});
  const absl::Status written = trace->Write(path);
  if (!written.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace=", path, ": cannot write it: ", written.message()));
  }
  return trace;
}

absl::Status RunProcess(const Track& track, const Processes& processes) {
  TrackFlags flags = FromCommandLine(track);
  if (flags.world_size == 0) flags.world_size = processes.size;
  flags.gpu = processes.gpu;
  const bool speaks = processes.rank == 0;  // one process speaks for all
  ABSL_ASSIGN_OR_RETURN(const Configured configured, Configure(flags));
  const TrainConfig& config = configured.config;
  if (absl::GetFlag(FLAGS_plan)) {
    ABSL_ASSIGN_OR_RETURN(const std::string simulated, SimulatedComm(config));
    ABSL_ASSIGN_OR_RETURN(const std::string text, PlanText(configured));
    if (speaks) std::fputs(absl::StrCat(text, simulated).c_str(), stdout);
    return absl::OkStatus();
  }
  if (absl::GetFlag(FLAGS_ranks) != 0) {
    return absl::InvalidArgumentError(
        "--ranks is of --plan, which predicts; to train on several ranks give --world_size");
  }
  if (speaks) ABSL_RETURN_IF_ERROR(CheckOutputs(config));
  std::unique_ptr<EventFile> events;
  if (speaks && !config.tensorboard_dir.empty()) {
    ABSL_ASSIGN_OR_RETURN(events, EventFile::Create(config.tensorboard_dir));
  }
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunLog> log,
      RunLog::Create(speaks ? config.metrics : "", config.resume, config.total_steps(),
                     speaks ? stdout : nullptr, std::move(events)));
  log->Text(absl::StrCat(CompositionText(track.name), "\n", configured.notes));
  const int64_t lines = config.recipe.preset == "demo" ? absl::GetFlag(FLAGS_sample_lines) : 0;
  std::unique_ptr<RunTrace> trace;
  if (speaks) {
    ABSL_ASSIGN_OR_RETURN(trace, MakeTrace());
  }
  InstallInterruptHandlers();
  absl::Status ending;  // an interrupt of it is not the ranks' to know, which are at their end
  const auto when_done = [&](const TrainedModel& trained) -> absl::Status {
    if (lines <= 0) return absl::OkStatus();
    ending = LogDemoEnding(config, trained, static_cast<int>(lines), *log);
    return absl::IsCancelled(ending) ? absl::OkStatus() : ending;
  };
  const absl::Status trained = Train(config, *log, when_done, trace.get());
  const absl::Status& finished = trained.ok() ? ending : trained;
  // Of a run that failed as well: they show what came before. Its own error goes first.
  const absl::Status traced =
      trace == nullptr ? absl::OkStatus() : trace->Write(absl::GetFlag(FLAGS_trace));
  const absl::Status closed = log->Close();
  absl::Status status = finished;
  for (const absl::Status& other : {traced, closed}) {
    if (other.ok()) continue;
    status = status.ok() ? other
                         : absl::Status(status.code(),
                                        absl::StrCat(status.message(), "; ", other.message()));
  }
  return status;
}

absl::Status Run(const Track& track, const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  ABSL_ASSIGN_OR_RETURN(const Processes processes, ProcessesOfRun());
  const absl::Status status = RunProcess(track, processes);
  // Several processes share one stderr.
  const std::string who = absl::StrCat("rank ", processes.rank, " of ", processes.size, ": ");
  if (status.ok() || processes.size == 1 || absl::StartsWith(status.message(), who)) return status;
  return absl::Status(status.code(), absl::StrCat(who, status.message()));
}

CommandHelp Help(const Track& track) {
  const std::string run = absl::StrCat("bazel run //tools:", track.name, " -- ");
  return {
      .name = track.name,
      .summary = absl::StrCat("trains a GPT by a record of the NanoGPT speedrun, ", track.record,
                              " if --record does not say another."),
      .usage = absl::StrCat(run, "[flags]"),
      .examples = {{"a minute's training on a CPU", absl::StrCat(run, "--preset=demo")},
                   {"the record on a GPU, from the shards in data/fineweb10B",
                    absl::StrCat("bazel run --config=cuda //tools:", track.name,
                                 " -- --preset=full --out_dir=runs/1 --metrics=runs/1.jsonl")},
                   {"the same on 8 GPUs",
                    absl::StrCat("bazel run --config=nccl //tools:launch -- --nproc=8 "
                                 "//tools:",
                                 track.name, " --preset=full")},
                   {"what it would take, on a card that need not be here",
                    absl::StrCat(run, "--preset=full --plan --card=h100-80gb")}},
      .groups = {
          {"Recipe",
           {"record", "preset", "steps", "extension_steps", "momentum_steps", "schedule_extension",
            "matrix_lr_mul", "seed", "deterministic", "on_nonfinite"}},
          {"Data",
           {"train_files", "val_files", "batch_tokens", "max_seq_len", "slots", "epochs",
            "val_tokens", "val_every"}},
          {"Machine", {"device", "slots_per_pass", "memory_gib", "threads"}},
          {"Ranks", {"world_size", "comm_timeout", "comm_check"}},
          {"Weights and checkpoints",
           {"init_from", "save_init", "out_dir", "checkpoint_every", "keep_checkpoints", "resume"}},
          {"What it tells",
           {"metrics", "tensorboard_dir", "trace", "trace_steps", "overwrite", "sample_lines"}},
          {"Plans, in place of a run",
           {"plan", "card", "ranks", "link_gbps", "latency_us", "link_shape", "phases", "tflops"}},
      }};
}

}  // namespace

int TrackMain(const Track& track, int argc, char** argv) {
  CommandHelp help = Help(track);
  help.version = CompositionText(track.name);
  return RunTool(argc, argv, help,
                 [&](const std::vector<std::string>& arguments) { return Run(track, arguments); });
}

}  // namespace tools
