#include "tools/trainer/train.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/tracing.h"
#include "data/loader.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/comm_times.h"
#include "tools/trainer/device.h"
#include "tools/trainer/progress_bar.h"
#include "tools/trainer/rank_trace.h"
#include "tools/trainer/rank_trainer.h"
#include "tools/trainer/ranks.h"
#include "tools/trainer/snapshot.h"

namespace tools {
namespace {

data::LoaderOptions LoaderOptionsOf(const TrainConfig& config) {
  data::LoaderOptions options;
  options.files = config.train_files;
  options.stages = config.loader_stages();
  options.token_map = config.token_map;
  options.epochs = config.epochs;
  return options;
}

// The loader where the run starts: at the first token, or where the checkpoint was.
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatches(const TrainConfig& config) {
  data::LoaderState start;
  int64_t first_step = 0;
  if (config.resume) {
    ABSL_ASSIGN_OR_RETURN(const ResumePoint resumed, LoadResumePoint(config));
    start = resumed.state.loader;
    first_step = resumed.state.step;
  }
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<data::TrainLoader> loader,
                        data::TrainLoader::Create(LoaderOptionsOf(config), start, first_step));
  ABSL_RETURN_IF_ERROR(loader->CheckEnough(config.total_steps() - first_step));
  return std::make_unique<BatchSource>(std::move(loader), first_step);
}

// Nothing is dropped in silence.
std::string DataText(const data::LoaderStats& stats) {
  return absl::StrCat(
      "data: ", stats.batches, " batches of ", stats.documents.documents, " documents; dropped ",
      stats.documents.tokens_truncated, " tokens of ", stats.documents.documents_truncated,
      " documents over --max_seq_len, ", stats.documents.tokens_cut, " at slot ends, ",
      stats.tokens_at_shard_ends, " at shard ends, ", stats.tokens_before_first_bos,
      " before a shard's first document, ", stats.shards_skipped, " shards smaller than a batch");
}

absl::Status RunRank(const TrainConfig& config, comm::Communicator& comm, int gpu,
                     BatchSource& batches, RunLog& log, ProgressBar& progress,
                     const std::function<absl::Status(const TrainedModel&)>& when_done,
                     RunTrace* run_trace) {
  const bool first = comm.rank() == 0;
  ABSL_ASSIGN_OR_RETURN(const Device device, OpenDevice(config.device, gpu));
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Queue> queue,
      device.make_queue({.threads = config.threads, .deterministic = config.deterministic}));
  RankTrace trace(run_trace, comm.rank(), *queue);
  const std::unique_ptr<comm::Communicator> traced = comm::MakeTracing(comm, trace);
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<RankTrainer> trainer,
      RankTrainer::Create(config, *traced, *device.backend, *queue, batches, first ? &log : nullptr,
                          first ? &progress : nullptr, trace));
  ABSL_RETURN_IF_ERROR(trainer->Run());
  if (!first || !when_done) return absl::OkStatus();
  progress.Clear();
  return when_done({trainer->parameters(), *device.backend, *queue, trainer->last_val_loss(),
                    trainer->memory_bytes()});
}

}  // namespace

absl::Status Train(const TrainConfig& config, RunLog& log,
                   const std::function<absl::Status(const TrainedModel&)>& when_done,
                   RunTrace* trace) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> batches, OpenBatches(config));
  ProgressBar progress(config.total_steps());
  if (trace != nullptr) {
    trace->SetFacts({.record = config.recipe.record,
                     .preset = config.recipe.preset,
                     .device = config.device,
                     .ranks = config.world_size,
                     .slots = config.recipe.data.slots,
                     .deterministic = config.deterministic});
  }
  const absl::Status status = RunRanks(config, [&](comm::Communicator& comm, int gpu) {
    return RunRank(config, comm, gpu, *batches, log, progress, when_done, trace);
  });
  progress.Clear();
  if (trace != nullptr) log.Text(CommTimesText(SumCollectives(trace->steps())));
  log.Text(DataText(batches->Stats()));
  return status;
}

}  // namespace tools
