#include "tools/trainer/train.h"

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/checking.h"
#include "comm/local/local.h"
#include "data/loader.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/progress_bar.h"
#include "tools/trainer/rank_trainer.h"
#include "tools/trainer/snapshot.h"

namespace tools {
namespace {

data::LoaderOptions LoaderOptionsOf(const TrainConfig& config) {
  data::LoaderOptions options;
  options.files = config.train_files;
  options.batch = config.batch_options();
  options.token_map = config.token_map;
  options.epochs = config.epochs;
  return options;
}

// The loader where the run starts: at the first token, or where the checkpoint was.
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatches(const TrainConfig& config) {
  data::LoaderState start;
  int64_t first_step = 0;
  if (config.resume) {
    ABSL_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          LoadLatestCheckpoint(config.checkpoint_root()));
    ABSL_ASSIGN_OR_RETURN(const RunState state, ParseRunState(checkpoint, config));
    start = state.loader;
    first_step = state.step;
  }
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<data::TrainLoader> loader,
                        data::TrainLoader::Create(LoaderOptionsOf(config), start));
  ABSL_RETURN_IF_ERROR(loader->CheckEnough(config.total_steps() - first_step));
  return std::make_unique<BatchSource>(std::move(loader), first_step);
}

// The first error that is not an echo of another rank's.
class FirstError {
 public:
  void Add(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool echo = absl::IsUnavailable(status);
    if (status_.ok() || (echo_ && !echo)) {
      status_ = status;
      echo_ = echo;
    }
  }
  absl::Status status() const { return status_; }

 private:
  std::mutex mutex_;
  absl::Status status_;
  bool echo_ = false;
};

// Nothing is dropped in silence.
std::string DataText(const data::LoaderStats& stats) {
  return absl::StrCat(
      "data: ", stats.batches, " batches of ", stats.documents.documents, " documents; dropped ",
      stats.documents.tokens_truncated, " tokens of ", stats.documents.documents_truncated,
      " documents over --max_seq_len, ", stats.documents.tokens_cut, " at slot ends, ",
      stats.tokens_at_shard_ends, " at shard ends, ", stats.tokens_before_first_bos,
      " before a shard's first document, ", stats.shards_skipped, " shards smaller than a batch");
}

absl::Status RunRank(const TrainConfig& config, comm::Communicator& comm, BatchSource& batches,
                     RunLog& log, ProgressBar& progress,
                     const std::function<absl::Status(const TrainedModel&)>& when_done) {
  const bool first = comm.rank() == 0;
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(config.threads);
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<RankTrainer> trainer,
                        RankTrainer::Create(config, comm, kernels::CpuBackend(), *queue, batches,
                                            first ? &log : nullptr, first ? &progress : nullptr));
  ABSL_RETURN_IF_ERROR(trainer->Run());
  if (!first || !when_done) return absl::OkStatus();
  progress.Clear();
  return when_done({trainer->parameters(), *queue, trainer->last_val_loss()});
}

}  // namespace

absl::Status Train(const TrainConfig& config, RunLog& log,
                   const std::function<absl::Status(const TrainedModel&)>& when_done) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> batches, OpenBatches(config));
  ProgressBar progress(config.total_steps());
  const std::shared_ptr<comm::LocalGroup> group =
      comm::LocalGroup::Create(config.world_size, config.comm_timeout);
  std::vector<std::unique_ptr<comm::Communicator>> ends;  // all, before any rank can leave
  for (int rank = 0; rank < config.world_size; ++rank) {
    ends.push_back(config.check_comm ? comm::MakeChecking(group->Join(rank)) : group->Join(rank));
  }
  FirstError error;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < config.world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<comm::Communicator> comm = std::move(ends[rank]);
      const absl::Status status = RunRank(config, *comm, *batches, log, progress, when_done);
      if (status.ok()) return;
      error.Add(status);
      comm->Abort(status);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  progress.Clear();
  log.Text(DataText(batches->Stats()));
  return error.status();
}

}  // namespace tools
