// What training computes in a step, written out: to compare backends, and to compare with torch.
#ifndef TOOLS_PARITY_STEP_DUMP_H_
#define TOOLS_PARITY_STEP_DUMP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/queue.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/trainer/train_config.h"

namespace tools {

struct StepDumpOptions {
  int64_t schedule_step = 0;  // windows, rotary, rates: those of this step of the run
  int batches = 1;            // global batches from the start of the data
  bool update = false;
};

// Loads config.init_from, and runs forward and backward of each batch k at these weights:
//
//   tokens.{k}, targets.{k}  i32 [slots, T]     boundaries.{k}  i32 [slots, n]
//   loss.{k}                 f32 [slots], summed over the slot's tokens
//   grad.{k}.{name}          f32, the weight's shape: sum over slots of the gradient of loss.{k}
//
// With `update`, then one optimizer update per batch from these gradients (those of later batches
// are still of the loaded weights), with the rates of schedule_step + k:
//
//   after.{name}             the weight's dtype and shape; f32 where there is a mantissa
//   state.{name}             the optimizer's, by its names in checkpoints
//
// Metadata: total_steps, schedule_step, block_tokens, short_window, long_window (tokens),
// attention_scale, batches. The config's world_size is not used: there is one rank.
absl::StatusOr<SafetensorsFile> DumpStep(const TrainConfig& config, const StepDumpOptions& options,
                                         kernels::Backend& backend, kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_PARITY_STEP_DUMP_H_
