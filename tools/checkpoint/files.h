// Files that are whole or absent, whatever moment the process or the disk dies.
#ifndef TOOLS_CHECKPOINT_FILES_H_
#define TOOLS_CHECKPOINT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// Writes the pieces to path.tmp, syncs, renames to path and syncs the folder.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status SyncFolder(const std::string& path);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_FILES_H_
