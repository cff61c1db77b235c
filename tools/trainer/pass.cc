#include "tools/trainer/pass.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/slot_upload.h"

namespace tools {

using kernels::DType;
using kernels::Tensor;

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(const TrainConfig& config,
                                                               comm::SlotRange run,
                                                               kernels::Backend& backend,
                                                               const kernels::Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(
      RotaryTable rotary,
      RotaryTable::Create(config.slot_tokens(), config.recipe.model.head_dim, backend));
  std::unique_ptr<PassRunner> runner(new PassRunner(run, std::move(rotary)));
  const int whole = std::min(config.slots_per_pass, run.count());
  if (whole > 0) {
    ABSL_RETURN_IF_ERROR(runner->AddShape(config, whole, backend, queue));
    const int rest = run.count() % whole;
    if (rest > 0) ABSL_RETURN_IF_ERROR(runner->AddShape(config, rest, backend, queue));
  }
  return runner;
}

absl::Status PassRunner::AddShape(const TrainConfig& config, int slots, kernels::Backend& backend,
                                  const kernels::Queue& queue) {
  const int64_t tokens = config.slot_tokens();
  const int64_t boundaries = data::MaxDocuments(config.batch_options());
  Shape shape;
  shape.slots = slots;
  shape.gpt = std::make_unique<model::Gpt>(
      config.recipe.model,
      model::PassShape{
          .slots = slots, .slot_tokens = tokens, .max_boundaries = boundaries, .train = true});
  kernels::ArenaPlan plan;
  shape.gpt->Plan(plan, queue);
  const kernels::TensorId tokens_id = plan.Add("tokens", DType::kI32, {slots, tokens});
  const kernels::TensorId targets_id = plan.Add("targets", DType::kI32, {slots, tokens});
  const kernels::TensorId boundaries_id = plan.Add("boundaries", DType::kI32, {slots, boundaries});
  const kernels::TensorId losses_id = plan.Add("losses", DType::kF32, {slots, tokens});
  ABSL_ASSIGN_OR_RETURN(shape.activations, kernels::Arena::Create(plan, backend));
  shape.gpt->Bind(shape.activations);
  shape.tokens = shape.activations.Get(tokens_id);
  shape.targets = shape.activations.Get(targets_id);
  shape.boundaries = shape.activations.Get(boundaries_id);
  shape.losses = shape.activations.Get(losses_id);
  shapes_.push_back(std::move(shape));
  return absl::OkStatus();
}

void PassRunner::Run(const data::GlobalBatch& batch, const sched::Windows& windows,
                     const std::vector<kernels::Parameter>& parameters, Tensor slot_losses,
                     kernels::Queue& queue) {
  for (Shape& shape : shapes_) shape.gpt->RoundWeights(parameters, queue);
  for (int done = 0; done < run_.count();) {
    Shape& shape = run_.count() - done >= shapes_.front().slots ? shapes_.front() : shapes_.back();
    RunSlots(shape, done, batch, windows, parameters, slot_losses, queue);
    done += shape.slots;
  }
}

void PassRunner::RunSlots(Shape& shape, int first, const data::GlobalBatch& batch,
                          const sched::Windows& windows,
                          const std::vector<kernels::Parameter>& parameters, Tensor slot_losses,
                          kernels::Queue& queue) {
  for (int slot = 0; slot < shape.slots; ++slot) {
    UploadSlot(batch.slots[run_.begin + first + slot], shape.tokens.Slice(slot, 1),
               shape.targets.Slice(slot, 1), shape.boundaries.Slice(slot, 1), queue);
  }
  const bool one_leaf = parameters.front().grad.dim(0) == 1;
  LossGrad(shape, one_leaf ? 0 : first, windows, parameters, queue);
  kernels::RowSums(shape.losses, slot_losses.Slice(first, shape.slots), queue);
}

void PassRunner::LossGrad(Shape& shape, int64_t leaf, const sched::Windows& windows,
                          const std::vector<kernels::Parameter>& parameters,
                          kernels::Queue& queue) {
  const auto enqueue = [this, &shape, leaf, windows, &parameters, &queue] {
    const model::PassInput input{.tokens = shape.tokens,
                                 .targets = shape.targets,
                                 .boundaries = shape.boundaries,
                                 .short_window_tokens = windows.short_tokens,
                                 .long_window_tokens = windows.long_tokens,
                                 .attention_scale = rotary_.attention_scale(),
                                 .cos = rotary_.cos(),
                                 .sin = rotary_.sin()};
    shape.gpt->LossGrad(input, parameters, leaf, shape.losses, queue);
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

int64_t PassRunner::bytes() const {
  int64_t bytes = rotary_.bytes();
  for (const Shape& shape : shapes_) bytes += shape.activations.plan().bytes();
  return bytes;
}

}  // namespace tools
