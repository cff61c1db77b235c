// The files that a glob on the command line means.
#ifndef TOOLS_RUN_LOGS_MATCHING_FILES_H_
#define TOOLS_RUN_LOGS_MATCHING_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tools {

// In alphabetical order; folders may be among them. NotFound if there are none, InvalidArgument if
// a folder on the way cannot be read.
absl::StatusOr<std::vector<std::string>> MatchingFiles(const std::string& pattern);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_MATCHING_FILES_H_
