// The Adam half of a step: a reduction and a gather per parameter, the update in between.
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

  // Uploads the next step's rates. `t` is the number of that update, from 1.
  void SetRates(double lr_multiplier, int64_t t, kernels::Queue& queue);
  // All reductions are launched first; then, in the same order, each parameter's own chunk is
  // updated and its gather launched. `guard` as AdamArgs::guard.
  absl::Status Step(kernels::Tensor guard, kernels::Queue& queue);
  void Drain(kernels::Queue& queue);

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

  std::vector<Item> items_;
  kernels::TensorId rates_id_;
  kernels::Tensor rates_;  // f32 [items, 2], as AdamArgs::rates
  std::vector<float> host_rates_;
};

}  // namespace optim

#endif  // OPTIM_ADAM_PART_H_
