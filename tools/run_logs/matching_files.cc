#include "tools/run_logs/matching_files.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/matching_paths.h"

namespace tools {
namespace {

absl::StatusOr<std::vector<std::string>> AskingForLogs(
    const absl::StatusOr<std::vector<std::string>>& found) {
  if (!absl::IsNotFound(found.status())) return found;
  const absl::string_view message = found.status().message();
  return absl::NotFoundError(absl::StrCat("\"", absl::StripSuffix(message, ": matches no file"),
                                          "\": no such file; give the logs of runs"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MatchingFiles(const std::string& pattern) {
  return AskingForLogs(data::MatchingPaths(pattern));
}

absl::StatusOr<std::vector<std::string>> MatchingFilesOfList(const std::string& list) {
  return AskingForLogs(data::MatchingPathsOfList(list));
}

}  // namespace tools
