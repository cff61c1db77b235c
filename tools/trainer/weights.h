// Weights between device memory and safetensors.
#ifndef TOOLS_TRAINER_WEIGHTS_H_
#define TOOLS_TRAINER_WEIGHTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "tools/checkpoint/safetensors.h"

namespace tools {

// All weights under their names, with stored shape and dtype. Waits for the queue.
TensorMap WeightsToHost(const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);

// Sets every weight from `tensors`, which `source` names in errors. InvalidArgument, with both
// values, if a weight is missing, has another shape or dtype, or if there is a tensor that the
// model does not have; nothing is changed then.
absl::Status WeightsFromHost(const TensorMap& tensors, const std::string& source,
                             const std::vector<kernels::Parameter>& parameters,
                             kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_TRAINER_WEIGHTS_H_
