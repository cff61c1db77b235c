// What RankTrainer does about steps that are not finite.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint_folder.h"
#include "tools/trainer/rank_trainer.h"

namespace tools {
namespace {

// Of --on_nonfinite=skip: a run that has gone wrong for good shall not look like one that trains.
constexpr int kMostSkippedInARow = 10;

}  // namespace

absl::StatusOr<std::optional<RankTrainer::Fault>> RankTrainer::FindFault(
    const StepInFlight& step, const std::vector<double>& slot_losses, bool tensors_finite) {
  Fault fault;
  for (size_t slot = 0; slot < slot_losses.size() && fault.text.empty(); ++slot) {
    if (!std::isfinite(slot_losses[slot])) {
      fault.text = absl::StrCat("the loss of slot ", slot, " is ", slot_losses[slot]);
    }
  }
  if (fault.text.empty() && tensors_finite) return std::nullopt;
  // The loss alone does not tell where it began; the first bad tensor is closer to it.
  const auto* found = static_cast<const int64_t*>(step.found->Wait());
  ABSL_ASSIGN_OR_RETURN(
      const std::optional<optim::AgreedNonFinite> agreed,
      memory_->optimizer->AgreeOnNonFinite(memory_->optimizer->DecodeFound(found), queue_));
  if (!agreed.has_value()) return fault;
  absl::StrAppend(&fault.text, fault.text.empty() ? "" : "; ", agreed->text);
  fault.in_weights = agreed->what.leaf == optim::NonFinite::kWeight;
  return fault;
}

absl::Status RankTrainer::SkipStep(const StepInFlight& step, const Fault& fault) {
  ++skipped_;
  if (++skipped_in_a_row_ > kMostSkippedInARow) {
    return absl::InternalError(
        absl::StrCat("training stopped at step ", step.step, ": ", fault.text,
                     "; --on_nonfinite=skip has left out ", kMostSkippedInARow,
                     " steps in a row before it, so this is not a bad batch"));
  }
  // No step is in flight behind it, and the guard has kept weights and moments.
  ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
  memory_->optimizer->SkipUpdate(queue_);
  RaiseGuard();
  if (log_ != nullptr) {
    progress_->Clear();
    log_->Skipped(step.step + 1, fault.text, skipped_);
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::StopAtFault(const StepInFlight& step, const Fault& fault) {
  ABSL_RETURN_IF_ERROR(memory_->optimizer->FinishGathers(queue_));
  // This step and those enqueued after it met the guard.
  memory_->optimizer->ForgetUpdates(step_ - step.step);
  step_ = step.step;
  in_flight_.clear();
  return absl::InternalError(
      absl::StrCat("training stopped at step ", step_, ": ", fault.text, "; ", SaveBefore(fault)));
}

std::string RankTrainer::SaveBefore(const Fault& fault) {
  if (config_.out_dir.empty()) return "nothing was saved, as there is no --out_dir";
  const std::string last = WhereToGoOn();
  if (fault.in_weights) return absl::StrCat("these weights were not saved; ", last);
  if (memory_->optimizer->LacksPendingGradients()) {
    return absl::StrCat(
        "no checkpoint of this step was written, as the gradients of the step before it, which "
        "wait for this one's, are lost with it; ",
        last);
  }
  const absl::Status written = SaveCheckpoint();
  return written.ok()
             ? absl::StrCat("the weights before this step are in ", config_.checkpoint_root())
             : absl::StrCat("and saving the weights before it failed: ", written.message());
}

std::string RankTrainer::WhereToGoOn() const {
  const absl::StatusOr<CheckpointListing> listing = ListCheckpoints(config_.checkpoint_root());
  if (!listing.ok()) return std::string(listing.status().message());
  if (listing->paths.empty()) {
    return absl::StrCat("there is no checkpoint to go on from in ", config_.checkpoint_root());
  }
  return absl::StrCat("--resume goes on from step ", listing->paths.rbegin()->first,
                      ", the last checkpoint in ", config_.checkpoint_root());
}

absl::StatusOr<std::string> RankTrainer::FaultOfWeights() {
  ABSL_ASSIGN_OR_RETURN(const std::optional<optim::AgreedNonFinite> agreed,
                        memory_->optimizer->AgreeOnNonFinite(
                            memory_->optimizer->FirstNonFiniteWeight(queue_), queue_));
  return agreed.has_value() ? agreed->text : std::string();
}

void RankTrainer::RaiseGuard() {
  const int32_t on = 1;
  queue_.Upload(&on, memory_->guard);
  queue_.Synchronize();
}

}  // namespace tools
