// Which checkpoints are under a root. Names of folders there:
//   step-00000250           a whole checkpoint
//   .old-step-00000250      one that a newer of the same step replaces; whole too
//   .tmp-step-00000250      being written, or being deleted
#ifndef TOOLS_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define TOOLS_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

std::string CheckpointPath(const std::string& root, int64_t step);
std::string TemporaryPath(const std::string& root, int64_t step);
std::string ReplacedPath(const std::string& root, int64_t step);

// The step of a folder named step-00000250; InvalidArgument for other names.
absl::StatusOr<int64_t> StepOfPath(const std::string& path);

struct CheckpointListing {
  // Whole checkpoints, by step. One that was replaced counts if its successor is not there.
  std::map<int64_t, std::string> paths;
  std::vector<std::string> leftovers;  // of kills and failed saves
};

// Empty if there is no such folder.
absl::StatusOr<CheckpointListing> ListCheckpoints(const std::string& root);

// Deletes a folder with what is in it; OK if there is none.
absl::Status RemoveFolder(const std::string& path);
absl::Status RenameFolder(const std::string& from, const std::string& to);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_CHECKPOINT_FOLDER_H_
