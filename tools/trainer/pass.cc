#include "tools/trainer/pass.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

using kernels::DType;
using kernels::Tensor;

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(const TrainConfig& config,
                                                               comm::SlotRange run,
                                                               kernels::Backend& backend,
                                                               const kernels::Queue& queue) {
  std::vector<kernels::ArenaPlan> plans;
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<PassRunner> runner,
                        Plan(config, run, backend, queue, &plans));
  if (plans.empty()) return runner;
  ABSL_ASSIGN_OR_RETURN(std::vector<kernels::Arena> arenas,
                        kernels::Arena::CreateOverlapping(std::move(plans), backend));
  runner->Bind(std::move(arenas));
  return runner;
}

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Plan(
    const TrainConfig& config, comm::SlotRange run, kernels::Backend& backend,
    const kernels::Queue& queue, std::vector<kernels::ArenaPlan>* plans) {
  const std::vector<int64_t> sizes = config.slot_sizes();
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary,
                        RotaryTable::Create(config.recipe.model, sizes.back(), backend));
  std::unique_ptr<PassRunner> runner(new PassRunner(run, std::move(rotary)));
  if (run.count() == 0) return runner;
  for (const int64_t size : sizes) {
    runner->stages_.push_back(PlanStage(config, size, run.count(), queue, plans->emplace_back()));
  }
  return runner;
}

void PassRunner::Bind(std::vector<kernels::Arena> arenas) {
  CHECK_EQ(arenas.size(), stages_.size());
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    stage.activations = std::move(arenas[i]);
    for (Shape& shape : stage.shapes) {
      shape.gpt->Bind(stage.activations);
      shape.input.Bind(stage.activations);
      shape.losses = stage.activations.Get(shape.losses_id);
    }
  }
}

PassRunner::Stage PassRunner::PlanStage(const TrainConfig& config, int64_t slot_tokens,
                                        int local_slots, const kernels::Queue& queue,
                                        kernels::ArenaPlan& plan) {
  Stage stage;
  stage.slot_tokens = slot_tokens;
  const int whole = config.pass_slots(slot_tokens, local_slots);
  for (int slots : {whole, local_slots % whole}) {
    if (slots == 0) continue;
    const model::PassShape pass{
        .slots = slots,
        .slot_tokens = slot_tokens,
        .max_boundaries = data::MaxDocuments(config.batch_options(slot_tokens)),
        .train = true};
    Shape shape;
    shape.slots = slots;
    shape.gpt = std::make_unique<model::Gpt>(config.recipe.model, pass);
    shape.gpt->Plan(plan, queue);
    shape.input.Plan(config.recipe.model, pass, plan);
    shape.losses_id = plan.Add("losses", DType::kF32, {slots, slot_tokens});
    stage.shapes.push_back(std::move(shape));
  }
  return stage;
}

// Recordings of the stage before are of no more use, but the device may not be through with them.
PassRunner::Stage& PassRunner::Enter(int64_t slot_tokens, kernels::Queue& queue) {
  if (current_ != nullptr && current_->slot_tokens == slot_tokens) return *current_;
  if (current_ != nullptr) {
    queue.Synchronize();
    for (Shape& shape : current_->shapes) shape.recordings.clear();
  }
  const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& stage) {
    return stage.slot_tokens == slot_tokens;
  });
  CHECK(found != stages_.end()) << "no memory was planned for slots of " << slot_tokens;
  current_ = &*found;
  return *current_;
}

void PassRunner::Begin(const data::GlobalBatch& batch, const sched::StepPlan& plan,
                       kernels::Queue& queue) {
  if (run_.count() == 0) return;
  Stage& stage = Enter(static_cast<int64_t>(batch.slots[run_.begin].inputs.size()), queue);
  for (Shape& shape : stage.shapes) shape.input.UploadLossWeights(plan.loss_weights, queue);
  UploadSlots(stage.shapes.front(), 0, batch, queue);
}

void PassRunner::Run(const data::GlobalBatch& batch, const sched::StepPlan& plan,
                     const std::vector<kernels::Parameter>& parameters, Tensor slot_losses,
                     kernels::Queue& queue) {
  if (run_.count() == 0) return;
  CHECK(current_ != nullptr) << "Begin comes first";
  for (Shape& shape : current_->shapes) shape.gpt->PrepareWeights(parameters, queue);
  const bool one_leaf = parameters.front().grad.dim(0) == 1;
  for (int done = 0; done < run_.count();) {
    const bool whole = run_.count() - done >= current_->shapes.front().slots;
    Shape& shape = whole ? current_->shapes.front() : current_->shapes.back();
    if (done > 0) UploadSlots(shape, done, batch, queue);
    LossGrad(shape, one_leaf ? 0 : done, plan.windows, parameters, queue);
    kernels::RowSums(shape.losses, slot_losses.Slice(done, shape.slots), queue);
    done += shape.slots;
  }
  current_->shapes.front().gpt->FinishGradients(parameters, queue);
}

void PassRunner::UploadSlots(Shape& shape, int first, const data::GlobalBatch& batch,
                             kernels::Queue& queue) {
  for (int slot = 0; slot < shape.slots; ++slot) {
    shape.input.Upload(slot, batch.slots[run_.begin + first + slot], queue);
  }
}

void PassRunner::LossGrad(Shape& shape, int64_t leaf, const sched::Windows& windows,
                          const std::vector<kernels::Parameter>& parameters,
                          kernels::Queue& queue) {
  const auto enqueue = [this, &shape, leaf, windows, &parameters, &queue] {
    shape.gpt->LossGrad(shape.input.Input(windows, rotary_), parameters, leaf, shape.losses, queue);
  };
  if (!recording_) return enqueue();
  const Constants constants{leaf, windows.short_tokens, windows.long_tokens,
                            rotary_.attention_scale()};
  const auto found = shape.recordings.find(constants);
  if (found != shape.recordings.end()) {
    std::unique_ptr<kernels::Recording>& recording = found->second;
    if (recording == nullptr) recording = queue.Record(enqueue);
    return recording->Replay();
  }
  // The last stage's recordings are of no more use, but the device may not be through with them.
  if (!shape.recordings.empty() && !SameStage(shape.recordings.begin()->first, constants)) {
    queue.Synchronize();
    shape.recordings.clear();
  }
  shape.recordings[constants] = nullptr;
  enqueue();
}

int64_t PassRunner::activation_bytes() const {
  int64_t most = 0;
  for (const Stage& stage : stages_) most = std::max(most, stage.activations.plan().bytes());
  return most;
}

}  // namespace tools
