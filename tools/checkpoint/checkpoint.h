// Checkpoints: a folder per step under `root`,
//   step-00000250/model.safetensors       weights
//   step-00000250/optimizer.safetensors   moments
//   step-00000250/state.json              everything else
//   step-00000250/checksums.json          of the three
//
// A folder has this name only while it is whole: it is written as .tmp-step-..., synced and
// renamed, and renamed again before it is deleted. So whatever fails, and at whatever moment the
// process or the machine dies, the last checkpoint that was saved is there and whole.
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

// Saves; then deletes what earlier kills left behind, and the checkpoints of the lowest steps, so
// that `keep` (at least 1) remain. Deletes no checkpoint before the new one is on the disk, and
// never the new one.
//
// An error (Unavailable, with the path and the system's words) means that the checkpoint was not
// saved, or that the disk does not say it was. When it is saved and something old cannot be
// deleted, `warning` says what, and is empty otherwise.
absl::Status SaveCheckpoint(const std::string& root, const Checkpoint& checkpoint, int keep,
                            std::string* warning);

// The checkpoint with the highest step under `root`. NotFound if there is none. If it is damaged
// that is an error which also names the newest whole one: to go on from an older step is for the
// user to choose, by removing the damaged folder.
absl::StatusOr<Checkpoint> LoadLatestCheckpoint(const std::string& root);

// `path` is a checkpoint's folder. DataLoss, with the file and both values, if a file's size or
// checksum is not what was saved.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_CHECKPOINT_H_
