// `bazel run` starts programs in a folder of its own; people mean paths from where they are.
#ifndef TOOLS_WORKING_FOLDER_H_
#define TOOLS_WORKING_FOLDER_H_

#include "absl/status/status.h"

namespace tools {

// Enters the folder that `bazel run` was called from; does nothing outside of `bazel run`.
// NotFound if that folder cannot be entered.
absl::Status EnterCallersFolder();

}  // namespace tools

#endif  // TOOLS_WORKING_FOLDER_H_
