// The files of runs that the command line means.
#ifndef TOOLS_RUN_LOGS_MATCHING_FILES_H_
#define TOOLS_RUN_LOGS_MATCHING_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tools {

// data::MatchingPaths, and MatchingPathsOfList, with an error that asks for logs: a path that
// exists is meant, whatever is in its name; patterns are globs.
absl::StatusOr<std::vector<std::string>> MatchingFiles(const std::string& pattern);
absl::StatusOr<std::vector<std::string>> MatchingFilesOfList(const std::string& list);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_MATCHING_FILES_H_
