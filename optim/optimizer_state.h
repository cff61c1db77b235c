// The optimizer's memory between steps, whole and in host memory: what a checkpoint holds. It
// does not depend on the number of ranks nor on the grouping.
#ifndef OPTIM_OPTIMIZER_STATE_H_
#define OPTIM_OPTIMIZER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/dtype.h"

namespace optim {

struct StateTensor {
  // NAME being the parameter's: "adam.m/NAME", "adam.v/NAME", "muon.momentum/NAME" of the
  // parameter's shape (Anvil's fast rail), "anvil.slow_rail/NAME" likewise,
  // "normuon.second_moment/NAME" of SecondMomentShape, "normuon.mantissa/NAME",
  // "muon.mantissa/NAME" or "adam.mantissa/NAME", u16 of the parameter's shape (second moment and
  // mantissa "anvil." for Anvil), and,
  // between two updates of a row that is not updated in every step, "adam.pending/NAME": the sum of
  // its gradients so far, f32, of the parameter's shape, in deterministic runs one for each slot,
  // [slots, ...].
  std::string name;
  kernels::DType dtype;  // as it is stored while training
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes = {};  // row-major
};

struct OptimizerState {
  int64_t updates = 0;  // steps so far, from step 0 on
  std::vector<StateTensor> tensors;
};

int64_t Elements(const std::vector<int64_t>& shape);
// Null if there is none.
const StateTensor* FindState(const OptimizerState& state, const std::string& name);
// FailedPrecondition: there is none, or it is of another dtype or shape.
absl::Status CheckStateTensor(const OptimizerState& state, const std::string& name,
                              kernels::DType dtype, const std::vector<int64_t>& shape);

}  // namespace optim

#endif  // OPTIM_OPTIMIZER_STATE_H_
