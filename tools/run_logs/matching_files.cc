#include "tools/run_logs/matching_files.h"

#include <glob.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tools {

absl::StatusOr<std::vector<std::string>> MatchingFiles(const std::string& pattern) {
  glob_t found = {};
  const int failure = glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  if (failure == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (failure == 0) return paths;
  if (failure == GLOB_NOMATCH) {
    return absl::NotFoundError(
        absl::StrCat("\"", pattern, "\": no such file; give the logs of runs"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", pattern, "\": a folder of this glob cannot be read; check its rights"));
}

}  // namespace tools
