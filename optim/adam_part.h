// The Adam half of a step: a reduction and a gather per parameter, the update in between. Only
// parameters whose row is due take part.
#ifndef OPTIM_ADAM_PART_H_
#define OPTIM_ADAM_PART_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/arena.h"
#include "optim/param_table.h"
#include "optim/sharded_buffer.h"
#include "optim/step_layout.h"

namespace optim {

class AdamPart {
 public:
  // Plans its memory in `plan`.
  AdamPart(const OptimizerConfig& config, const StepLayout& layout,
           const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
           comm::Communicator& comm, kernels::ArenaPlan* plan);
  void Bind(const kernels::Arena& arena, kernels::Tensor tree_scratch);

  // Uploads the rates of step `step` of a run whose first step was `first`.
  void SetRates(double lr_multiplier, int64_t step, int64_t first, kernels::Queue& queue);
  // Which items are due in that step: what Step does depends on it alone.
  std::vector<bool> Due(int64_t step) const;
  // All reductions are launched first; then, in the same order, each parameter's own chunk is
  // updated and its gather launched. `guard` as AdamArgs::guard.
  absl::Status Step(const std::vector<bool>& due, kernels::Tensor guard, kernels::Queue& queue);
  void Drain(kernels::Queue& queue);
  // Moments as they were at first: zero.
  void Reset(kernels::Queue& queue);

  absl::Status GatherState(kernels::Tensor stage, kernels::Queue& queue,
                           std::vector<StateTensor>* out);
  absl::Status CheckState(const OptimizerState& state) const;
  // Of a state that CheckState accepts.
  void LoadState(const OptimizerState& state, kernels::Queue& queue);

 private:
  struct Item {
    ParamRow row;
    std::unique_ptr<ShardedBuffer> buffer;
    kernels::TensorId m_id, v_id;
    kernels::Tensor m, v;  // row.moment_dtype [chunk]
  };

  // What an item keeps between steps.
  static std::vector<ShardedBuffer::Kept> KeptOf(const Item& item) {
    return {{.prefix = "adam.m", .own = item.m}, {.prefix = "adam.v", .own = item.v}};
  }

  std::vector<Item> items_;
  kernels::TensorId rates_id_;
  kernels::Tensor rates_;  // f32 [items, 2], as AdamArgs::rates
  std::vector<float> host_rates_;
};

}  // namespace optim

#endif  // OPTIM_ADAM_PART_H_
