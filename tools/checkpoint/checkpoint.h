// Checkpoints: a folder per step under `root`,
//   step-00000250/model.safetensors       weights
//   step-00000250/optimizer.safetensors   moments
//   step-00000250/state.json              everything else
// A folder appears under its name only when it is complete: it is written as .tmp-step-... and
// renamed, so a kill at any moment leaves the earlier ones usable.
#ifndef TOOLS_CHECKPOINT_CHECKPOINT_H_
#define TOOLS_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/checkpoint/safetensors.h"

namespace tools {

struct Checkpoint {
  int64_t step = 0;       // updates done
  SafetensorsFile model;  // metadata says which recipe
  SafetensorsFile optimizer;
  std::string state_json;
};

// Saves, then deletes the oldest so that `keep` remain (at least 1), and what earlier kills left
// behind. Never deletes before the new one is complete.
absl::Status SaveCheckpoint(const std::string& root, const Checkpoint& checkpoint, int keep);

// The checkpoint with the highest step under `root`. NotFound if there is none.
absl::StatusOr<Checkpoint> LoadLatestCheckpoint(const std::string& root);

// `path` is a checkpoint's folder.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_CHECKPOINT_H_
