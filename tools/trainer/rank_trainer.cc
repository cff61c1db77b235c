#include "tools/trainer/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/slot_tree.h"
#include "model/init.h"
#include "optim/build_choices.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/interrupt.h"
#include "tools/trainer/snapshot.h"
#include "tools/trainer/weights.h"

namespace tools {
namespace {

using kernels::DType;

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

int MostSlots(const TrainConfig& config) {
  return comm::SlotsOfRank(config.recipe.data.slots, config.world_size, 0).count();
}

// What follows a rank's slot losses in the gathered row.
constexpr int kFlags = 2;  // gradients finite, interrupted

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Create(
    const TrainConfig& config, comm::Communicator& comm, kernels::Backend& backend,
    kernels::Queue& queue, BatchSource& batches, RunLog* log, ProgressBar* progress) {
  std::unique_ptr<RankTrainer> trainer(
      new RankTrainer(config, comm, queue, batches, log, progress));
  ABSL_RETURN_IF_ERROR(trainer->Allocate(backend));
  return trainer;
}

absl::Status RankTrainer::Allocate(kernels::Backend& backend) {
  const Recipe& recipe = config_.recipe;
  run_ = comm::SlotsOfRank(recipe.data.slots, comm_.size(), comm_.rank());
  const int leaves = config_.deterministic ? run_.count() : 1;
  ABSL_ASSIGN_OR_RETURN(weights_, model::ParameterArena::Create(recipe.model, leaves, backend));
  ABSL_ASSIGN_OR_RETURN(passes_, PassRunner::Create(config_, run_, backend, queue_));
  ABSL_ASSIGN_OR_RETURN(evaluator_, Evaluator::Create(config_, comm_, backend, queue_));
  ABSL_ASSIGN_OR_RETURN(optimizer_, optim::ShardedOptimizer::Create(
                                        recipe.optimizer, weights_->parameters(), comm_,
                                        recipe.data.slots, run_, config_.deterministic, backend));
  kernels::ArenaPlan plan;
  const int64_t row = MostSlots(config_) + kFlags;
  const kernels::TensorId losses = plan.Add("slot losses", DType::kF32, {row});
  const kernels::TensorId all = plan.Add("all slot losses", DType::kF32, {comm_.size(), row});
  ABSL_ASSIGN_OR_RETURN(arena_, kernels::Arena::Create(plan, backend));
  losses_ = arena_.Get(losses);
  all_losses_ = arena_.Get(all);
  return absl::OkStatus();
}

int64_t RankTrainer::memory_bytes() const {
  return weights_->bytes() + passes_->bytes() + evaluator_->bytes() + optimizer_->bytes() +
         arena_.plan().bytes();
}

absl::Status RankTrainer::InitializeWeights() {
  if (config_.init_from.empty()) {
    model::InitParameters(config_.recipe.model, config_.seed, weights_->parameters(), queue_);
  } else {
    ABSL_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(config_.init_from));
    ABSL_RETURN_IF_ERROR(
        WeightsFromHost(file.tensors, config_.init_from, weights_->parameters(), queue_));
  }
  // All ranks computed or read the same; the broadcast makes it so whatever they read.
  for (const kernels::Parameter& parameter : weights_->parameters()) {
    ABSL_RETURN_IF_ERROR(
        comm_.Broadcast(parameter.spec.name, parameter.value, 0, queue_).Wait(queue_));
  }
  if (comm_.rank() == 0 && !config_.save_init.empty()) {
    SafetensorsFile file;
    file.tensors = WeightsToHost(weights_->parameters(), queue_);
    file.metadata = ModelMetadata(config_, 0);
    ABSL_RETURN_IF_ERROR(WriteSafetensors(config_.save_init, file));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::Resume() {
  ABSL_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                        LoadLatestCheckpoint(config_.checkpoint_root()));
  ABSL_ASSIGN_OR_RETURN(const RunState state, ParseRunState(checkpoint, config_));
  ABSL_RETURN_IF_ERROR(WeightsFromHost(checkpoint.model.tensors, config_.checkpoint_root(),
                                       weights_->parameters(), queue_));
  ABSL_RETURN_IF_ERROR(optimizer_->LoadState(
      OptimizerStateFromTensors(checkpoint.optimizer.tensors, state.updates), queue_));
  step_ = state.step;
  tokens_ = state.tokens;
  train_ms_ = state.train_ms;
  return absl::OkStatus();
}

absl::Status RankTrainer::Run() {
  ABSL_RETURN_IF_ERROR(config_.resume ? Resume() : InitializeWeights());
  first_step_ = step_;
  const sched::Schedules& schedules = config_.recipe.schedules;
  while (true) {
    const sched::StepPlan plan = sched::PlanStep(schedules, step_);
    if (plan.rotary_changes || step_ == first_step_) {
      const sched::Rotary rotary =
          sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, step_);
      passes_->SetRotary(rotary, queue_);
      evaluator_->SetRotary(rotary, queue_);
    }
    if (plan.validates) ABSL_RETURN_IF_ERROR(Validate());
    if (!plan.trains) break;
    ABSL_RETURN_IF_ERROR(Step(plan));
    const bool due = config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0;
    const bool last = step_ == config_.total_steps();
    if (!config_.out_dir.empty() && (due || interrupted_ || last)) {
      ABSL_RETURN_IF_ERROR(SaveCheckpoint());
    }
    if (interrupted_) break;
  }
  if (!interrupted_) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat("interrupted after step ", step_, "; ",
                   config_.out_dir.empty()
                       ? "nothing was saved, as there is no --out_dir"
                       : absl::StrCat("go on with --out_dir=", config_.out_dir, " --resume")));
}

absl::Status RankTrainer::Step(const sched::StepPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  ABSL_ASSIGN_OR_RETURN(const BatchSource::Batch batch, batches_.Get(step_));

  // Forward and backward of this rank's slots.
  weights_->ZeroGradients(queue_);
  passes_->Run(*batch, plan.windows, weights_->parameters(), losses_, queue_);

  // Nothing changes before all ranks know that the step is sound.
  bool gradients_finite = true;
  ABSL_ASSIGN_OR_RETURN(const std::vector<double> slot_losses, GatherLosses(&gradients_finite));
  ABSL_RETURN_IF_ERROR(StopIfNotFinite(slot_losses, gradients_finite));

  // Scatter, update, gather.
  ABSL_RETURN_IF_ERROR(
      optimizer_->Step({.lr_multiplier = plan.lr_multiplier, .momentum = plan.momentum}, queue_));
  ++step_;

  // Log.
  queue_.Synchronize();
  const double step_ms = MillisecondsSince(start);
  train_ms_ += step_ms;
  tokens_ += plan.batch_tokens;
  if (log_ != nullptr) {
    StepRecord record;
    record.step = step_;
    for (double loss : slot_losses) record.loss += loss;
    record.loss /= static_cast<double>(plan.batch_tokens);
    record.lr = plan.lr_multiplier;
    record.momentum = plan.momentum;
    record.tokens = tokens_;
    record.step_ms = step_ms;
    record.tokens_per_s = plan.batch_tokens / (step_ms / 1000);
    record.window_tokens = plan.windows.long_tokens;
    progress_->Clear();
    log_->Step(record, train_ms_);
    progress_->Update(step_, record.loss, record.tokens_per_s,
                      train_ms_ / step_ * (config_.total_steps() - step_) / 1000);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> RankTrainer::GatherLosses(bool* gradients_finite) {
  const int64_t most = MostSlots(config_);
  const float flags[kFlags] = {optimizer_->FirstNonFiniteGradient(queue_) ? 0.0f : 1.0f,
                               Interrupted() ? 1.0f : 0.0f};
  queue_.Upload(flags, losses_.Slice(most, kFlags));
  ABSL_RETURN_IF_ERROR(
      comm_.AllGather("slot losses", losses_, all_losses_.Reshape({-1}), queue_).Wait(queue_));
  std::vector<float> rows(all_losses_.size());
  queue_.Download(all_losses_, rows.data());
  queue_.Synchronize();
  std::vector<double> losses;
  *gradients_finite = true;
  interrupted_ = false;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const float* row = rows.data() + rank * (most + kFlags);
    const int count = comm::SlotsOfRank(config_.recipe.data.slots, comm_.size(), rank).count();
    losses.insert(losses.end(), row, row + count);
    if (row[most] == 0.0f) *gradients_finite = false;
    if (row[most + 1] != 0.0f) interrupted_ = true;
  }
  return losses;
}

absl::Status RankTrainer::StopIfNotFinite(const std::vector<double>& slot_losses,
                                          bool gradients_finite) {
  std::string what;
  for (size_t slot = 0; slot < slot_losses.size() && what.empty(); ++slot) {
    if (!std::isfinite(slot_losses[slot])) {
      what = absl::StrCat("the loss of slot ", slot, " is ", slot_losses[slot]);
    }
  }
  if (what.empty() && gradients_finite) return absl::OkStatus();
  // The loss alone does not tell where it began; the first bad gradient is closer to it.
  const absl::Status gradient = optimizer_->CheckFinite(queue_);
  if (!gradient.ok()) absl::StrAppend(&what, what.empty() ? "" : "; ", gradient.message());
  std::string saved = "nothing was saved, as there is no --out_dir";
  if (!config_.out_dir.empty()) {
    ABSL_RETURN_IF_ERROR(SaveCheckpoint());
    saved = absl::StrCat("the weights before this step are in ", config_.checkpoint_root());
  }
  return absl::InternalError(
      absl::StrCat("training stopped at step ", step_, ": ", what, "; ", saved));
}

absl::Status RankTrainer::Validate() {
  const sched::StepPlan plan = sched::PlanStep(config_.recipe.schedules, step_);
  ABSL_ASSIGN_OR_RETURN(val_loss_, evaluator_->Run(plan.windows, weights_->parameters(), queue_));
  if (log_ != nullptr) {
    progress_->Clear();
    log_->Validation(step_, val_loss_, train_ms_);
  }
  if (std::isfinite(val_loss_)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the validation loss at step ", step_, " is ", val_loss_));
}

absl::Status RankTrainer::SaveCheckpoint() {
  ABSL_ASSIGN_OR_RETURN(const optim::OptimizerState state, optimizer_->GatherState(queue_));
  if (comm_.rank() == 0) {
    Checkpoint checkpoint;
    checkpoint.step = step_;
    checkpoint.model.tensors = WeightsToHost(weights_->parameters(), queue_);
    checkpoint.model.metadata = ModelMetadata(config_, step_);
    checkpoint.optimizer.tensors = TensorsFromOptimizerState(state);
    ABSL_ASSIGN_OR_RETURN(const data::LoaderState loader, batches_.StateBefore(step_));
    checkpoint.state_json = FormatRunState({.step = step_,
                                            .updates = state.updates,
                                            .tokens = tokens_,
                                            .train_ms = train_ms_,
                                            .loader = loader},
                                           config_);
    ABSL_RETURN_IF_ERROR(
        tools::SaveCheckpoint(config_.checkpoint_root(), checkpoint, config_.keep_checkpoints));
  }
  // Nobody goes on to a step that a crash would lose while the files are half there.
  return comm_.Barrier("checkpoint");
}

}  // namespace tools
