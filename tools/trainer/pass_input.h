// What a pass reads besides weights, on the device: tokens, documents, and the schedule's values.
#ifndef TOOLS_TRAINER_PASS_INPUT_H_
#define TOOLS_TRAINER_PASS_INPUT_H_

#include <cstdint>
#include <vector>

#include "data/batcher.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "model/pass.h"
#include "sched/window.h"
#include "tools/trainer/rotary_table.h"

namespace tools {

class PassInputTensors {
 public:
  // Plans memory for passes of this shape; loss weights only where the shape trains.
  void Plan(const model::GptConfig& config, const model::PassShape& shape,
            kernels::ArenaPlan& plan);
  void Bind(const kernels::Arena& arena);

  // Where the slot's documents end: boundaries as in data::SlotBatch.
  void UploadBoundaries(int64_t slot, const std::vector<int32_t>& boundaries,
                        kernels::Queue& queue) const;
  // Tokens, targets and boundaries.
  void Upload(int64_t slot, const data::SlotBatch& batch, kernels::Queue& queue) const;
  // At most as many as the model's config says; nothing for a model without loss weights.
  void UploadLossWeights(const std::vector<float>& weights, kernels::Queue& queue) const;

  kernels::Tensor tokens() const { return tokens_; }  // i32 [slots, T]
  model::PassInput Input(const sched::Windows& windows, const RotaryTable& rotary) const;

 private:
  kernels::TensorId tokens_id_, targets_id_, boundaries_id_, paired_id_, weights_id_;
  kernels::Tensor tokens_, targets_, boundaries_, paired_, weights_;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_PASS_INPUT_H_
