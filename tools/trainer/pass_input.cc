#include "tools/trainer/pass_input.h"

#include "third_party/absl_compat/check.h"

namespace tools {

using kernels::DType;

void PassInputTensors::Plan(const model::GptConfig& config, const model::PassShape& shape,
                            kernels::ArenaPlan& plan) {
  const std::vector<int64_t> tokens = {shape.slots, shape.slot_tokens};
  const std::vector<int64_t> boundaries = {shape.slots, shape.max_boundaries};
  tokens_id_ = plan.Add("tokens", DType::kI32, tokens);
  targets_id_ = plan.Add("targets", DType::kI32, tokens);
  boundaries_id_ = plan.Add("boundaries", DType::kI32, boundaries);
  if (model::HasPairedHeads(config)) {
    paired_id_ = plan.Add("paired boundaries", DType::kI32, boundaries);
  }
  if (shape.train && config.loss_weights > 0) {
    weights_id_ = plan.Add("loss weights", DType::kF32, {config.loss_weights});
  }
}

void PassInputTensors::Bind(const kernels::Arena& arena) {
  tokens_ = arena.Get(tokens_id_);
  targets_ = arena.Get(targets_id_);
  boundaries_ = arena.Get(boundaries_id_);
  if (paired_id_.index >= 0) paired_ = arena.Get(paired_id_);
  if (weights_id_.index >= 0) weights_ = arena.Get(weights_id_);
}

void PassInputTensors::UploadBoundaries(int64_t slot, const std::vector<int32_t>& boundaries,
                                        kernels::Queue& queue) const {
  CHECK_EQ(static_cast<int64_t>(boundaries.size()), boundaries_.dim(1));
  queue.Upload(boundaries.data(), boundaries_.Slice(slot, 1));
  if (!paired_) return;
  std::vector<int32_t> paired;
  for (int32_t boundary : boundaries) paired.push_back(2 * boundary);
  queue.Upload(paired.data(), paired_.Slice(slot, 1));
}

void PassInputTensors::Upload(int64_t slot, const data::SlotBatch& batch,
                              kernels::Queue& queue) const {
  CHECK_EQ(static_cast<int64_t>(batch.inputs.size()), tokens_.dim(1));
  CHECK_EQ(static_cast<int64_t>(batch.targets.size()), targets_.dim(1));
  queue.Upload(batch.inputs.data(), tokens_.Slice(slot, 1));
  queue.Upload(batch.targets.data(), targets_.Slice(slot, 1));
  UploadBoundaries(slot, batch.boundaries, queue);
}

void PassInputTensors::UploadLossWeights(const std::vector<float>& weights,
                                         kernels::Queue& queue) const {
  if (!weights_) return;
  std::vector<float> padded = weights;
  CHECK_LE(static_cast<int64_t>(padded.size()), weights_.size());
  padded.resize(weights_.size(), 0.0f);
  queue.Upload(padded.data(), weights_);
}

model::PassInput PassInputTensors::Input(const sched::Windows& windows,
                                         const RotaryTable& rotary) const {
  model::PassInput input;
  input.tokens = tokens_;
  input.targets = targets_;
  input.boundaries = boundaries_;
  input.paired_boundaries = paired_;
  input.loss_weights = weights_;
  input.short_window_tokens = windows.short_tokens;
  input.long_window_tokens = windows.long_tokens;
  input.attention_scale = rotary.attention_scale();
  input.cos = rotary.cos();
  input.sin = rotary.sin();
  return input;
}

}  // namespace tools
