#include "tools/trainer/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/stream_hash.h"
#include "kernels/ops/elementwise.h"
#include "model/init.h"
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
  trainer->memory_->reads->SetSource(batches);
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
  ABSL_ASSIGN_OR_RETURN(const ResumePoint resumed, LoadResumePoint(config_));
  const auto& [checkpoint, state] = resumed;
  ABSL_RETURN_IF_ERROR(WeightsFromHost(checkpoint.model.tensors, config_.checkpoint_root(),
                                       memory_->weights->parameters(), queue_));
  ABSL_RETURN_IF_ERROR(memory_->optimizer->LoadState(
      OptimizerStateFromTensors(checkpoint.optimizer.tensors, state.updates), queue_));
  step_ = state.step;
  tokens_ = state.tokens;
  train_ms_ = state.train_ms;
  skipped_ = state.skipped;
  stream_hash_ = state.stream_hash;
  return AgreeOnStart();
}

absl::StatusOr<std::vector<int64_t>> RankTrainer::GatherNumbers(absl::string_view label,
                                                                int64_t mine) {
  const kernels::Tensor own = memory_->numbers.Slice(comm_.rank(), 1);
  queue_.Upload(&mine, own);
  ABSL_RETURN_IF_ERROR(comm_.AllGather(label, own, memory_->numbers, queue_).Wait(queue_));
  std::vector<int64_t> numbers(comm_.size());
  queue_.Download(memory_->numbers, numbers.data());
  queue_.Synchronize();
  return numbers;
}

absl::Status RankTrainer::AgreeOnStart() {
  // Each rank has read the files by itself, perhaps from a disk of its own.
  ABSL_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, GatherNumbers("first step", step_));
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
  if (log_ != nullptr) log_->Begin(first_step_);
  RaiseGuard();
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
  ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
  ABSL_RETURN_IF_ERROR(memory_->optimizer->GatherTables(queue_));
  ABSL_RETURN_IF_ERROR(LogStream());
  if (!interrupted_) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat("interrupted after step ", step_, "; ",
                   config_.out_dir.empty()
                       ? "nothing was saved, as there is no --out_dir"
                       : absl::StrCat("go on with --out_dir=", config_.out_dir, " --resume")));
}

absl::Status RankTrainer::AgreeOnStream() {
  ABSL_ASSIGN_OR_RETURN(
      const std::vector<int64_t> hashes,
      GatherNumbers("token stream", static_cast<int64_t>(std::exchange(own_stream_hash_, 0))));
  for (const int64_t hash : hashes) stream_hash_ += static_cast<uint64_t>(hash);
  return absl::OkStatus();
}

absl::Status RankTrainer::LogStream() {
  ABSL_RETURN_IF_ERROR(AgreeOnStream());
  if (log_ == nullptr) return absl::OkStatus();
  progress_->Clear();
  log_->Text(absl::StrFormat("token stream: %016x over %d steps of %d slots", stream_hash_, step_,
                             config_.recipe.data.slots));
  if (skipped_ > 0) {
    log_->Text(absl::StrCat(skipped_, " of ", step_,
                            " steps were left out, as their losses or gradients were not finite"));
  }
  return absl::OkStatus();
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
  uint64_t stream_hash = 0;
  for (int slot = memory_->run.begin; slot < memory_->run.end; ++slot) {
    stream_hash += data::HashOfSlot(step_, slot, batch->slots[slot]);
  }
  memory_->optimizer->ClearGradients(queue_);
  memory_->passes->Begin(*batch, plan, queue_);
  // New weights have been on their way since the last step, under all that needs none of them.
  if (memory_->optimizer->gathers_in_flight()) {
    trace_.Phase("gathers", kernels::OpPhase::kOptimizer);
    ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
    trace_.Phase("forward+backward");
  }
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
                        .stream_hash = stream_hash,
                        .losses = queue_.StartDownload(memory_->all_losses),
                        .found = queue_.StartDownload(memory_->optimizer->found())});
  ++step_;
  // A device works on this step while the host reads the results of the one before; unless that may
  // have to be left out, with the step after it as it should be.
  const bool ahead =
      queue_.device() != kernels::DeviceKind::kCpu && config_.on_nonfinite == OnNonFinite::kStop;
  return FinishSteps(ahead ? 1 : 0);
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
  bool tensors_finite = true;
  for (int rank = 0; rank < comm_.size(); ++rank, row += most + kLossFlags) {
    const int count = comm::SlotsOfRank(config_.recipe.data.slots, comm_.size(), rank).count();
    slot_losses.insert(slot_losses.end(), row, row + count);
    if (std::isnan(row[most])) tensors_finite = false;
    if (row[most + 1] != 0.0f) interrupted_ = true;
  }
  const auto now = std::chrono::steady_clock::now();
  const double step_ms = std::chrono::duration<double, std::milli>(now - last_finish_).count();
  last_finish_ = now;
  ABSL_ASSIGN_OR_RETURN(const std::optional<Fault> fault,
                        FindFault(step, slot_losses, tensors_finite));
  train_ms_ += step_ms;
  if (fault.has_value()) {
    const bool skips = config_.on_nonfinite == OnNonFinite::kSkip && !fault->in_weights;
    if (!skips) return StopAtFault(step, *fault);
  }
  // Not of a step at which the run stops: what goes on from before it reads its tokens again.
  own_stream_hash_ += step.stream_hash;
  if (fault.has_value()) return SkipStep(step, *fault);
  skipped_in_a_row_ = 0;
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

absl::Status RankTrainer::Validate() {
  trace_.Phase("validation");
  ABSL_RETURN_IF_ERROR(FinishSteps(0));
  ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
  ABSL_RETURN_IF_ERROR(memory_->optimizer->GatherTables(queue_));
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
  ABSL_ASSIGN_OR_RETURN(const std::string fault, FaultOfWeights());
  return absl::InternalError(absl::StrCat("the validation loss at step ", step_, " is ", val_loss_,
                                          fault.empty() ? "" : "; ", fault));
}

absl::Status RankTrainer::SaveCheckpoint() {
  trace_.Phase("checkpoint");
  ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
  // What the latest update left has met no guard yet.
  ABSL_ASSIGN_OR_RETURN(const std::string fault, FaultOfWeights());
  if (!fault.empty()) {
    return absl::InternalError(absl::StrCat("no checkpoint of step ", step_,
                                            " was written: ", fault, "; ", WhereToGoOn()));
  }
  ABSL_RETURN_IF_ERROR(memory_->optimizer->GatherTables(queue_));
  ABSL_RETURN_IF_ERROR(AgreeOnStream());
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
                                            .skipped = skipped_,
                                            .stream_hash = stream_hash_,
                                            .loader = loader},
                                           config_);
    std::string warning;
    ABSL_RETURN_IF_ERROR(tools::SaveCheckpoint(config_.checkpoint_root(), checkpoint,
                                               config_.keep_checkpoints, &warning));
    if (!warning.empty()) {
      log_->Text(absl::StrCat("warning: the checkpoint of step ", step_,
                              " is saved, but something old stays: ", warning));
    }
  }
  // Nobody goes on to a step that a crash would lose while the files are half there.
  ABSL_RETURN_IF_ERROR(comm_.Barrier("checkpoint"));
  trace_.EndPhase();
  return absl::OkStatus();
}

}  // namespace tools
