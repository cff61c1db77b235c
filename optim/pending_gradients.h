// Gradients that wait for a later step: those of parameters that are not updated in every one.
#ifndef OPTIM_PENDING_GRADIENTS_H_
#define OPTIM_PENDING_GRADIENTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "kernels/parameter.h"
#include "optim/optimizer_state.h"
#include "optim/param_table.h"
#include "optim/sharded_buffer.h"
#include "optim/step_layout.h"

namespace optim {

class PendingGradients {
 public:
  // All arguments outlive the object.
  PendingGradients(const OptimizerConfig& config, const StepLayout& layout,
                   const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
                   comm::Communicator& comm);

  // After step `step`: what was not due waits on.
  void AfterStep(int64_t step);
  // Whether gradients that wait after `updates` steps are lost.
  bool Lacks(int64_t updates) const;
  // Nothing waits any more: at a new start, or since what waited is lost.
  void Forget();
  // Zeroes all gradients but those that wait.
  void ClearOthers(kernels::Queue& queue) const;

  // Names of the tensors that a state after `updates` steps has.
  std::set<std::string> StateNames(int64_t updates) const;
  // Collective. `stage`: f32, at least a parameter's size. The host waits.
  absl::Status GatherState(kernels::Tensor stage, kernels::Queue& queue,
                           std::vector<StateTensor>* out) const;
  absl::Status CheckState(const OptimizerState& state) const;
  // Of a state that CheckState accepts. The sum of all slots goes to rank 0, the sum of one to the
  // rank that has the slot; the other gradients that wait become zero.
  void LoadState(const OptimizerState& state, kernels::Queue& queue);

 private:
  std::string StateName(size_t parameter) const;
  std::vector<int64_t> StateShape(size_t parameter) const;
  // Whether a parameter's gradient waits after `updates` steps from step 0.
  bool Waits(size_t parameter, int64_t updates) const {
    return updates > 0 && !IsDue(rows_[parameter], updates - 1);
  }

  const std::vector<kernels::Parameter>& parameters_;
  const SlotPlan slots_;
  comm::Communicator& comm_;
  std::vector<ParamRow> rows_;  // of the parameters
  std::vector<bool> waits_;     // of the parameters
};

}  // namespace optim

#endif  // OPTIM_PENDING_GRADIENTS_H_
