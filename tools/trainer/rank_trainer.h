// One rank's part of a run. The story of a step is RankTrainer::Step.
#ifndef TOOLS_TRAINER_RANK_TRAINER_H_
#define TOOLS_TRAINER_RANK_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "tools/trainer/batch_source.h"
#include "tools/trainer/progress_bar.h"
#include "tools/trainer/rank_memory.h"
#include "tools/trainer/rank_trace.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/train_config.h"

namespace tools {

class RankTrainer {
 public:
  // Allocates everything. `log` and `progress` are null except on rank 0. `trace` is told what the
  // rank does.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(
      const TrainConfig& config, comm::Communicator& comm, kernels::Backend& backend,
      kernels::Queue& queue, BatchSource& batches, RunLog* log, ProgressBar* progress,
      RankTrace& trace);

  // Trains from the initial or resumed state to the end. Cancelled if a signal asked to stop: a
  // checkpoint was written if there is an out_dir.
  absl::Status Run();

  const std::vector<kernels::Parameter>& parameters() const {
    return memory_->weights->parameters();
  }
  double last_val_loss() const { return val_loss_; }
  int64_t memory_bytes() const { return memory_->bytes(); }

 private:
  RankTrainer(const TrainConfig& config, comm::Communicator& comm, kernels::Queue& queue,
              BatchSource& batches, RunLog* log, ProgressBar* progress, RankTrace& trace)
      : config_(config),
        comm_(comm),
        queue_(queue),
        batches_(batches),
        log_(log),
        progress_(progress),
        trace_(trace) {}

  absl::Status InitializeWeights();
  absl::Status Resume();
  // That all ranks resume at the same step.
  absl::Status AgreeOnStart();
  // Collective: every rank's number, by rank.
  absl::StatusOr<std::vector<int64_t>> GatherNumbers(absl::string_view label, int64_t mine);
  // Collective: stream_hash_ becomes that of all steps so far.
  absl::Status AgreeOnStream();
  absl::Status LogStream();

  // A step that is enqueued, its results on their way to the host.
  struct StepInFlight {
    int64_t step = 0;  // updates before it
    sched::StepPlan plan;
    uint64_t stream_hash = 0;                   // of this rank's slots
    std::unique_ptr<kernels::Readback> losses;  // memory_->all_losses
    std::unique_ptr<kernels::Readback> found;   // ShardedOptimizer::found()
  };

  // Enqueues a step and reads the results of the one before.
  absl::Status Step(const sched::StepPlan& plan);
  // Lets all ranks have all slots' losses, and lowers the guard if something is not finite.
  absl::Status GatherLosses();
  // Until `leave` steps are in flight.
  absl::Status FinishSteps(size_t leave);
  absl::Status FinishStep(const StepInFlight& step);
  void KeepTuning();
  void LogStep(const StepInFlight& step, const std::vector<double>& slot_losses, double step_ms);

  // What was not finite in a step.
  struct Fault {
    std::string text;
    bool in_weights = false;  // and not only in this step's losses or gradients
  };
  // Collective if there is one. `tensors_finite`: of all ranks' weights and gradients.
  absl::StatusOr<std::optional<Fault>> FindFault(const StepInFlight& step,
                                                 const std::vector<double>& slot_losses,
                                                 bool tensors_finite);
  // InternalError if there were too many in a row.
  absl::Status SkipStep(const StepInFlight& step, const Fault& fault);
  // Saves what was good before it, and says what was saved. Never OK.
  absl::Status StopAtFault(const StepInFlight& step, const Fault& fault);
  std::string SaveBefore(const Fault& fault);
  // "--resume goes on from ...", or that there is no checkpoint to go on from.
  std::string WhereToGoOn() const;
  // Collective: names a weight that is not finite; empty if all are.
  absl::StatusOr<std::string> FaultOfWeights();
  // Lets updates happen.
  void RaiseGuard();

  absl::Status Validate();
  absl::Status SaveCheckpoint();

  const TrainConfig& config_;
  comm::Communicator& comm_;
  kernels::Queue& queue_;
  BatchSource& batches_;
  RunLog* const log_;
  ProgressBar* const progress_;
  RankTrace& trace_;

  std::unique_ptr<RankMemory> memory_;

  int64_t step_ = 0;  // updates enqueued
  std::deque<StepInFlight> in_flight_;
  std::chrono::steady_clock::time_point last_finish_;  // of a step, or of what came after it
  int64_t tokens_ = 0;                                 // trained on
  double train_ms_ = 0;
  double val_loss_ = 0;
  uint64_t own_stream_hash_ = 0;  // of this rank's finished steps since the latest AgreeOnStream
  uint64_t stream_hash_ = 0;      // of all ranks' up to then: see data::HashOfSlot
  int64_t skipped_ = 0;           // steps left out, of all of the run
  int skipped_in_a_row_ = 0;
  bool interrupted_ = false;   // some rank was asked to stop; all ranks agree
  int64_t first_step_ = 0;     // where this process started
  int64_t tuned_tokens_ = 0;   // of the latest batch
  int64_t first_of_size_ = 0;  // the first step with batches of that size
};

}  // namespace tools

#endif  // TOOLS_TRAINER_RANK_TRAINER_H_
