// The optimizer's memory between steps, whole and in host memory: what a checkpoint holds. It
// does not depend on the number of ranks nor on the grouping.
#ifndef OPTIM_OPTIMIZER_STATE_H_
#define OPTIM_OPTIMIZER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace optim {

struct StateTensor {
  // "adam.m/NAME", "adam.v/NAME" or "muon.momentum/NAME", NAME being the parameter's.
  std::string name;
  kernels::DType dtype;        // as it is stored while training
  std::vector<int64_t> shape;  // the parameter's
  std::vector<uint8_t> bytes;  // row-major
};

struct OptimizerState {
  int64_t updates = 0;  // steps so far; Adam's bias correction counts them
  std::vector<StateTensor> tensors;
};

}  // namespace optim

#endif  // OPTIM_OPTIMIZER_STATE_H_
