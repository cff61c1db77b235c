#include "tools/trainer/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
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

// Passes and update run op by op in the first step with batches of a size and are recorded in the
// second.
constexpr int kTunedAfter = 1;

// The run begins with the embedding as the transposed head; what it begins with has to be that too,
// or the first update would silently replace the embedding.
absl::Status CheckTied(const TensorMap& weights, const std::string& path) {
  const HostTensor& head = weights.at("lm_head.weight");
  const HostTensor& embed = weights.at("embed.weight");
  const int64_t dim = head.shape[0], vocab = head.shape[1];
  const auto* from = reinterpret_cast<const uint16_t*>(head.bytes.data());
  const auto* to = reinterpret_cast<const uint16_t*>(embed.bytes.data());
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t v = 0; v < vocab; ++v) {
      if (from[d * vocab + v] == to[v * dim + d]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--init_from=", path,
                       ": this record begins with head and embedding tied, but "
                       "embed.weight [",
                       v, ", ", d, "] is not lm_head.weight [", d, ", ", v,
                       "]; give weights from before they part"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Create(
    const TrainConfig& config, comm::Communicator& comm, kernels::Backend& backend,
    kernels::Queue& queue, BatchSource& batches, RunLog* log, ProgressBar* progress,
    RankTrace& trace) {
  ABSL_RETURN_IF_ERROR(CheckMemory(config, queue));
  std::unique_ptr<RankTrainer> trainer(
      new RankTrainer(config, comm, queue, batches, log, progress, trace));
  ABSL_ASSIGN_OR_RETURN(trainer->memory_, RankMemory::Create(config, comm, backend, queue));
  ABSL_RETURN_IF_ERROR(trainer->memory_->evaluator->Open(config));
  return trainer;
}

absl::Status RankTrainer::InitializeWeights() {
  if (config_.init_from.empty()) {
    model::InitParameters(config_.recipe.model, config_.seed, memory_->weights->parameters(),
                          queue_);
  } else {
    ABSL_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(config_.init_from));
    ABSL_RETURN_IF_ERROR(
        WeightsFromHost(file.tensors, config_.init_from, memory_->weights->parameters(), queue_));
    if (sched::PlanStep(config_.recipe.schedules, 0).tied) {
      ABSL_RETURN_IF_ERROR(CheckTied(file.tensors, config_.init_from));
    }
  }
  // All ranks computed or read the same; the broadcast makes it so whatever they read.
  for (const kernels::Parameter& parameter : memory_->weights->parameters()) {
    ABSL_RETURN_IF_ERROR(
        comm_.Broadcast(parameter.spec.name, parameter.value, 0, queue_).Wait(queue_));
  }
  if (comm_.rank() == 0 && !config_.save_init.empty()) {
    SafetensorsFile file;
    file.tensors = WeightsToHost(memory_->weights->parameters(), queue_);
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
                                       memory_->weights->parameters(), queue_));
  ABSL_RETURN_IF_ERROR(memory_->optimizer->LoadState(
      OptimizerStateFromTensors(checkpoint.optimizer.tensors, state.updates), queue_));
  step_ = state.step;
  tokens_ = state.tokens;
  train_ms_ = state.train_ms;
  return AgreeOnStart();
}

absl::Status RankTrainer::AgreeOnStart() {
  // Each rank has read the files by itself, perhaps from a disk of its own.
  queue_.Upload(&step_, memory_->starts.Slice(comm_.rank(), 1));
  ABSL_RETURN_IF_ERROR(
      comm_.AllGather("first step", memory_->starts.Slice(comm_.rank(), 1), memory_->starts, queue_)
          .Wait(queue_));
  std::vector<int64_t> starts(comm_.size());
  queue_.Download(memory_->starts, starts.data());
  queue_.Synchronize();
  for (int rank = 1; rank < comm_.size(); ++rank) {
    if (starts[rank] == starts[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: rank 0 has a checkpoint of step ", starts[0], ", rank ", rank, " one of step ",
        starts[rank], " in ", config_.checkpoint_root(), "; is that folder shared by all hosts?"));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::Run() {
  ABSL_RETURN_IF_ERROR(config_.resume ? Resume() : InitializeWeights());
  first_step_ = step_;
  const int32_t on = 1;
  queue_.Upload(&on, memory_->guard);
  queue_.Synchronize();
  last_finish_ = std::chrono::steady_clock::now();
  const sched::Schedules& schedules = config_.recipe.schedules;
  while (true) {
    const sched::StepPlan plan = sched::PlanStep(schedules, step_);
    if (plan.rotary_changes || step_ == first_step_) {
      const sched::Rotary rotary =
          sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, step_);
      memory_->passes->SetRotary(rotary, queue_);
    }
    if (plan.validates) ABSL_RETURN_IF_ERROR(Validate());
    if (!plan.trains) break;
    ABSL_RETURN_IF_ERROR(Step(plan));
    const bool due = config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0;
    const bool last = step_ == config_.total_steps();
    if (due || last || interrupted_) ABSL_RETURN_IF_ERROR(FinishSteps(0));
    if (!config_.out_dir.empty() && (due || last || interrupted_)) {
      ABSL_RETURN_IF_ERROR(SaveCheckpoint());
      last_finish_ = std::chrono::steady_clock::now();
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
  trace_.BeginStep(step_);
  memory_->passes->set_recording(!trace_.tracing_ops());
  memory_->optimizer->set_recording(!trace_.tracing_ops());
  trace_.Phase("batch wait");
  ABSL_ASSIGN_OR_RETURN(const BatchSource::Batch batch, batches_.Get(step_));
  trace_.SetBatch(batch, memory_->run);

  // Forward and backward of this rank's slots.
  trace_.Phase("forward+backward");
  memory_->optimizer->ClearGradients(queue_);
  memory_->passes->Run(*batch, plan, memory_->weights->parameters(), memory_->losses, queue_);

  // The guard falls on all ranks if something is not finite on one: from then on nothing changes.
  trace_.Phase("losses");
  ABSL_RETURN_IF_ERROR(GatherLosses());

  // Scatter, update, gather.
  trace_.Phase("optimizer", kernels::OpPhase::kOptimizer);
  ABSL_RETURN_IF_ERROR(memory_->optimizer->Step({.lr_multiplier = plan.lr_multiplier,
                                                 .momentum = plan.momentum,
                                                 .step = step_,
                                                 .tied = plan.tied},
                                                memory_->guard, queue_));
  trace_.EndStep();

  in_flight_.push_back({.step = step_,
                        .plan = plan,
                        .losses = queue_.StartDownload(memory_->all_losses),
                        .found = queue_.StartDownload(memory_->optimizer->found())});
  ++step_;
  // A device works on this step while the host reads the results of the one before.
  return FinishSteps(queue_.device() == kernels::DeviceKind::kCpu ? 0 : 1);
}

absl::Status RankTrainer::GatherLosses() {
  const int64_t most = memory_->losses.size() - kLossFlags;
  const float flags[kLossFlags] = {0.0f, Interrupted() ? 1.0f : 0.0f};
  queue_.Upload(flags, memory_->losses.Slice(most, kLossFlags));
  memory_->optimizer->LaunchFiniteCheck(queue_);
  kernels::PoisonIfFound(memory_->optimizer->found(), memory_->losses.Slice(most, 1), queue_);
  ABSL_RETURN_IF_ERROR(
      comm_.AllGather("slot losses", memory_->losses, memory_->all_losses.Reshape({-1}), queue_)
          .Wait(queue_));
  kernels::ClearUnlessFinite(memory_->all_losses, memory_->guard, queue_);
  return absl::OkStatus();
}

absl::Status RankTrainer::FinishSteps(size_t leave) {
  while (in_flight_.size() > leave) {
    const StepInFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    ABSL_RETURN_IF_ERROR(FinishStep(step));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::FinishStep(const StepInFlight& step) {
  const int64_t most = memory_->losses.size() - kLossFlags;
  const float* row = static_cast<const float*>(step.losses->Wait());
  std::vector<double> slot_losses;
  bool gradients_finite = true;
  for (int rank = 0; rank < comm_.size(); ++rank, row += most + kLossFlags) {
    const int count = comm::SlotsOfRank(config_.recipe.data.slots, comm_.size(), rank).count();
    slot_losses.insert(slot_losses.end(), row, row + count);
    if (std::isnan(row[most])) gradients_finite = false;
    if (row[most + 1] != 0.0f) interrupted_ = true;
  }
  const auto now = std::chrono::steady_clock::now();
  const double step_ms = std::chrono::duration<double, std::milli>(now - last_finish_).count();
  last_finish_ = now;
  ABSL_RETURN_IF_ERROR(StopIfNotFinite(step, slot_losses, gradients_finite));
  train_ms_ += step_ms;
  tokens_ += step.plan.batch_tokens;
  if (step.plan.batch_tokens != tuned_tokens_) {
    tuned_tokens_ = step.plan.batch_tokens;
    first_of_size_ = step.step;
  }
  if (step.step == first_of_size_ + kTunedAfter) KeepTuning();
  if (log_ != nullptr) LogStep(step, slot_losses, step_ms);
  return absl::OkStatus();
}

void RankTrainer::KeepTuning() {
  if (comm_.rank() != 0) return;
  const absl::Status saved = queue_.SaveTuning();
  // The run does not need the file; the next start will time the algorithms again.
  if (!saved.ok() && log_ != nullptr) log_->Text(absl::StrCat("warning: ", saved.message()));
}

void RankTrainer::LogStep(const StepInFlight& step, const std::vector<double>& slot_losses,
                          double step_ms) {
  StepRecord record;
  record.step = step.step + 1;
  for (double loss : slot_losses) record.loss += loss;
  record.loss /= static_cast<double>(step.plan.batch_tokens);
  record.lr = step.plan.lr_multiplier;
  record.momentum = step.plan.momentum;
  record.tokens = tokens_;
  record.step_ms = step_ms;
  record.tokens_per_s = step.plan.batch_tokens / (step_ms / 1000);
  record.window_tokens = step.plan.windows.long_tokens;
  progress_->Clear();
  log_->Step(record, train_ms_);
  progress_->Update(record.step, record.loss, record.tokens_per_s,
                    train_ms_ / record.step * (config_.total_steps() - record.step) / 1000);
}

absl::Status RankTrainer::StopIfNotFinite(const StepInFlight& step,
                                          const std::vector<double>& slot_losses,
                                          bool gradients_finite) {
  std::string what;
  for (size_t slot = 0; slot < slot_losses.size() && what.empty(); ++slot) {
    if (!std::isfinite(slot_losses[slot])) {
      what = absl::StrCat("the loss of slot ", slot, " is ", slot_losses[slot]);
    }
  }
  if (what.empty() && gradients_finite) return absl::OkStatus();
  // The loss alone does not tell where it began; the first bad gradient is closer to it.
  const auto* found = static_cast<const int64_t*>(step.found->Wait());
  const absl::Status gradient =
      memory_->optimizer->AgreeOnNonFinite(memory_->optimizer->DecodeFound(found), queue_);
  if (!gradient.ok()) absl::StrAppend(&what, what.empty() ? "" : "; ", gradient.message());
  // This step and those enqueued after it met the guard.
  memory_->optimizer->ForgetUpdates(step_ - step.step);
  step_ = step.step;
  in_flight_.clear();
  std::string saved = "nothing was saved, as there is no --out_dir";
  if (!config_.out_dir.empty() && memory_->optimizer->LacksPendingGradients()) {
    saved = absl::StrCat(
        "no checkpoint of this step was written, as the gradients of the step before it, which "
        "wait "
        "for this one's, are lost with it; --resume goes on from the last one in ",
        config_.checkpoint_root());
  } else if (!config_.out_dir.empty()) {
    const absl::Status written = SaveCheckpoint();
    saved = written.ok()
                ? absl::StrCat("the weights before this step are in ", config_.checkpoint_root())
                : absl::StrCat("and saving the weights before it failed: ", written.message());
  }
  return absl::InternalError(
      absl::StrCat("training stopped at step ", step_, ": ", what, "; ", saved));
}

absl::Status RankTrainer::Validate() {
  trace_.Phase("validation");
  ABSL_RETURN_IF_ERROR(FinishSteps(0));
  const sched::Schedules& schedules = config_.recipe.schedules;
  const sched::StepPlan plan = sched::PlanStep(schedules, step_);
  // Here and not when the table changes: that is on the training's clock, and this one is long.
  memory_->evaluator->SetRotary(
      sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, step_), queue_);
  ABSL_ASSIGN_OR_RETURN(
      val_loss_, memory_->evaluator->Run(plan.windows, memory_->weights->parameters(), queue_));
  trace_.EndPhase();
  if (log_ != nullptr) {
    progress_->Clear();
    log_->Validation(step_, val_loss_, train_ms_);
  }
  last_finish_ = std::chrono::steady_clock::now();
  if (std::isfinite(val_loss_)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the validation loss at step ", step_, " is ", val_loss_));
}

absl::Status RankTrainer::SaveCheckpoint() {
  trace_.Phase("checkpoint");
  ABSL_ASSIGN_OR_RETURN(const optim::OptimizerState state, memory_->optimizer->GatherState(queue_));
  if (comm_.rank() == 0) {
    Checkpoint checkpoint;
    checkpoint.step = step_;
    checkpoint.model.tensors = WeightsToHost(memory_->weights->parameters(), queue_);
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
  ABSL_RETURN_IF_ERROR(comm_.Barrier("checkpoint"));
  trace_.EndPhase();
  return absl::OkStatus();
}

}  // namespace tools
