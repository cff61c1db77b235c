// Files that are whole or absent, whatever moment the process or the disk dies.
#ifndef TOOLS_CHECKPOINT_FILES_H_
#define TOOLS_CHECKPOINT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// What a file is known by.
struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;

  friend bool operator==(const FileSum&, const FileSum&) = default;
};

// Writes the pieces to a temporary file beside `path`, syncs, renames it to `path` and syncs the
// folder. `sum`, unless null, is that of the pieces in memory, whatever the disk makes of them.
//
// Unavailable, with the path and the system's words, if that fails; the temporary file is removed
// then. InvalidArgument if `path` is something else than a file, such as /dev/null, which the
// rename would replace.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces,
                                 FileSum* sum = nullptr);
absl::StatusOr<std::string> ReadFile(const std::string& path);

// So that what was created, renamed or removed in a folder stays so when the power fails.
absl::Status SyncFolder(const std::string& path);
// `path` and its missing parents, each synced.
absl::Status CreateFolders(const std::string& path);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_FILES_H_
