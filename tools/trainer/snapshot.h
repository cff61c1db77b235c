// What a checkpoint holds beside weights: where the run was, and whether it is the same run.
#ifndef TOOLS_TRAINER_SNAPSHOT_H_
#define TOOLS_TRAINER_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "data/batcher.h"
#include "optim/optimizer_state.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/train_config.h"

namespace tools {

struct RunState {
  int64_t step = 0;     // updates done
  int64_t updates = 0;  // the optimizer's count
  int64_t tokens = 0;
  double train_ms = 0;
  int64_t skipped = 0;       // steps of --on_nonfinite=skip, that were left out
  uint64_t stream_hash = 0;  // of the tokens so far: see data::HashOfSlot
  data::LoaderState loader;  // before the next batch
};

// state.json. Beside the state it holds what must be equal for a resumed run to be the same run:
// record, preset, model, batch, steps, rates, seed, data files.
std::string FormatRunState(const RunState& state, const TrainConfig& config);

// FailedPrecondition, with both values, if the checkpoint belongs to another run than `config`;
// DataLoss for a state.json that is damaged or of a newer format.
absl::StatusOr<RunState> ParseRunState(const Checkpoint& checkpoint, const TrainConfig& config);

// Where --resume goes on: the run's latest checkpoint, and what its state.json says.
struct ResumePoint {
  Checkpoint checkpoint;
  RunState state;
};

// NotFound, with what to do, if there is no checkpoint; else the errors of LoadLatestCheckpoint and
// of ParseRunState.
absl::StatusOr<ResumePoint> LoadResumePoint(const TrainConfig& config);

// What makes a model's file usable without the run: enough to build the model and its tokens, and
// which windows and rotary table the weights know. `step`: updates done.
std::map<std::string, std::string> ModelMetadata(const TrainConfig& config, int64_t step);

TensorMap TensorsFromOptimizerState(const optim::OptimizerState& state);
optim::OptimizerState OptimizerStateFromTensors(const TensorMap& tensors, int64_t updates);

}  // namespace tools

#endif  // TOOLS_TRAINER_SNAPSHOT_H_
