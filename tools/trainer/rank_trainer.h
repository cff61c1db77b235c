// One rank's part of a run. The story of a step is RankTrainer::Step.
#ifndef TOOLS_TRAINER_RANK_TRAINER_H_
#define TOOLS_TRAINER_RANK_TRAINER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/slot_tree.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/parameters.h"
#include "optim/sharded_optimizer.h"
#include "tools/trainer/batch_source.h"
#include "tools/trainer/evaluator.h"
#include "tools/trainer/pass.h"
#include "tools/trainer/progress_bar.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/train_config.h"

namespace tools {

class RankTrainer {
 public:
  // Allocates everything. `log` and `progress` are null except on rank 0.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(
      const TrainConfig& config, comm::Communicator& comm, kernels::Backend& backend,
      kernels::Queue& queue, BatchSource& batches, RunLog* log, ProgressBar* progress);

  // Trains from the initial or resumed state to the end. Cancelled if a signal asked to stop: a
  // checkpoint was written if there is an out_dir.
  absl::Status Run();

  const std::vector<kernels::Parameter>& parameters() const { return weights_->parameters(); }
  double last_val_loss() const { return val_loss_; }
  int64_t memory_bytes() const;

 private:
  RankTrainer(const TrainConfig& config, comm::Communicator& comm, kernels::Queue& queue,
              BatchSource& batches, RunLog* log, ProgressBar* progress)
      : config_(config),
        comm_(comm),
        queue_(queue),
        batches_(batches),
        log_(log),
        progress_(progress) {}

  absl::Status Allocate(kernels::Backend& backend);
  absl::Status InitializeWeights();
  absl::Status Resume();

  absl::Status Step(const sched::StepPlan& plan);
  absl::Status Validate();
  absl::Status SaveCheckpoint();
  absl::Status StopIfNotFinite(const std::vector<double>& slot_losses, bool gradients_finite);
  // All ranks' sums of slot losses in slot order, and whether all gradients are finite.
  absl::StatusOr<std::vector<double>> GatherLosses(bool* gradients_finite);

  const TrainConfig& config_;
  comm::Communicator& comm_;
  kernels::Queue& queue_;
  BatchSource& batches_;
  RunLog* const log_;
  ProgressBar* const progress_;

  comm::SlotRange run_;  // this rank's slots
  std::unique_ptr<model::ParameterArena> weights_;
  std::unique_ptr<PassRunner> passes_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<optim::ShardedOptimizer> optimizer_;
  kernels::Arena arena_;
  kernels::Tensor losses_;      // f32 [2 + most slots of a rank]: sums, gradient flag, interrupt
  kernels::Tensor all_losses_;  // f32 [ranks, ...]

  int64_t step_ = 0;    // updates done
  int64_t tokens_ = 0;  // trained on
  double train_ms_ = 0;
  double val_loss_ = 0;
  bool interrupted_ = false;  // some rank was asked to stop; all ranks agree
  int64_t first_step_ = 0;    // where this process started
};

}  // namespace tools

#endif  // TOOLS_TRAINER_RANK_TRAINER_H_
