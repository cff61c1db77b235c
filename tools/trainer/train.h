// Runs a training: ranks as threads, one log.
#ifndef TOOLS_TRAINER_TRAIN_H_
#define TOOLS_TRAINER_TRAIN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/train_config.h"

namespace tools {

// What is left of a finished run, on rank 0.
struct TrainedModel {
  const std::vector<kernels::Parameter>& parameters;
  kernels::Backend& backend;
  kernels::Queue& queue;
  double val_loss;
  int64_t memory_bytes;  // planned by the rank, on its device
};

// Trains to the end. `when_done` is called on rank 0 after a run that was neither stopped nor
// failed, while the weights still exist; may be empty. Of the ranks' errors the one is returned
// that the others follow from. `trace`, if not null, gets the steps that it covers.
absl::Status Train(const TrainConfig& config, RunLog& log,
                   const std::function<absl::Status(const TrainedModel&)>& when_done,
                   RunTrace* trace = nullptr);

}  // namespace tools

#endif  // TOOLS_TRAINER_TRAIN_H_
