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
#include "tools/trainer/track_flags.h"
#include "tools/trainer/train.h"

TRACK_FLAGS(NO_GROUP, DEFINE_FLAG)

namespace tools {
namespace {

TrackFlags FromCommandLine(const Track& track) {
  TrackFlags flags;
#define COPY_FLAG(type, name, ...) flags.name = absl::GetFlag(FLAGS_##name);
  TRACK_FLAGS(NO_GROUP, COPY_FLAG)
#undef COPY_FLAG
  if (flags.record.empty()) flags.record = track.record;
  return flags;
}

// The groups of --help.
std::vector<CommandHelp::Group> FlagGroups() {
  std::vector<CommandHelp::Group> groups;
#define ADD_GROUP(title) groups.push_back({title, {}});
#define ADD_FLAG(type, name, ...) groups.back().flags.emplace_back(#name);
  TRACK_FLAGS(ADD_GROUP, ADD_FLAG)
#undef ADD_FLAG
#undef ADD_GROUP
  return groups;
}

// Empty without --ranks.
absl::StatusOr<std::string> SimulatedComm(const TrackFlags& given, const TrainConfig& config) {
  const CommPlanFlags flags{.ranks = given.ranks,
                            .link_gbps = given.link_gbps,
                            .latency_us = given.latency_us,
                            .link_shape = given.link_shape,
                            .phases = given.phases,
                            .tflops = given.tflops};
  if (flags.ranks == 0) return "";
  ABSL_ASSIGN_OR_RETURN(const std::string text, CommPlanText(config, flags));
  return absl::StrCat("\n", text);
}

// Only for the process that writes the files: to others they may be there already.
absl::Status CheckOutputs(const TrackFlags& flags, const TrainConfig& config) {
  const OutputFile metrics = {"metrics", config.metrics};
  std::vector<OutputFile> files = {{"trace", flags.trace}};
  if (config.resume) {
    ABSL_RETURN_IF_ERROR(CheckMetricsToAppendTo(metrics));
  } else {
    files.push_back(metrics);
    files.push_back({"save_init", config.save_init});
  }
  return CheckOutputFiles(files, flags.overwrite);
}

// Null without --trace. Writes an empty trace, so that an unwritable file is found before training.
absl::StatusOr<std::unique_ptr<RunTrace>> MakeTrace(const TrackFlags& flags) {
  const std::string& path = flags.trace;
  const int64_t steps = flags.trace_steps;
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
  if (flags.plan) {
    ABSL_ASSIGN_OR_RETURN(const std::string simulated, SimulatedComm(flags, config));
    ABSL_ASSIGN_OR_RETURN(const std::string text, PlanText(configured));
    if (speaks) std::fputs(absl::StrCat(text, simulated).c_str(), stdout);
    return absl::OkStatus();
  }
  if (flags.ranks != 0) {
    return absl::InvalidArgumentError(
        "--ranks is of --plan, which predicts; to train on several ranks give --world_size");
  }
  if (speaks) ABSL_RETURN_IF_ERROR(CheckOutputs(flags, config));
  std::unique_ptr<EventFile> events;
  if (speaks && !config.tensorboard_dir.empty()) {
    ABSL_ASSIGN_OR_RETURN(events, EventFile::Create(config.tensorboard_dir));
  }
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunLog> log,
      RunLog::Create(speaks ? config.metrics : "", config.resume, config.total_steps(),
                     speaks ? stdout : nullptr, std::move(events)));
  log->Text(absl::StrCat(CompositionText(track.name), "\n", configured.notes));
  const int64_t lines = config.recipe.preset == "demo" ? flags.sample_lines : 0;
  std::unique_ptr<RunTrace> trace;
  if (speaks) {
    ABSL_ASSIGN_OR_RETURN(trace, MakeTrace(flags));
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
  const absl::Status traced = trace == nullptr ? absl::OkStatus() : trace->Write(flags.trace);
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
  return {.name = track.name,
          .summary = absl::StrCat("trains a GPT by a record of the NanoGPT speedrun, ",
                                  track.record, " if --record does not say another."),
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
          .groups = FlagGroups()};
}

}  // namespace

int TrackMain(const Track& track, int argc, char** argv) {
  CommandHelp help = Help(track);
  help.version = CompositionText(track.name);
  return RunTool(argc, argv, help,
                 [&](const std::vector<std::string>& arguments) { return Run(track, arguments); });
}

}  // namespace tools
