#include "tools/verify_record/run_set.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/run_logs/matching_files.h"
#include "tools/verify_record/run_result.h"

namespace tools {

absl::StatusOr<std::vector<std::string>> ListLogs(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& list : patterns) {
    const std::vector<std::string> globs = absl::StrSplit(list, ',');
    for (const std::string& pattern : globs) {
      ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> found, MatchingFiles(pattern));
      paths.insert(paths.end(), found.begin(), found.end());
    }
  }
  std::sort(paths.begin(), paths.end());
  const auto twice = std::adjacent_find(paths.begin(), paths.end());
  if (twice != paths.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*twice, ": given twice, but it is one run; name each log once"));
  }
  return paths;
}

absl::StatusOr<RunSet> RunSetOfLogs(const std::vector<std::string>& paths) {
  RunSet runs;
  for (const std::string& path : paths) {
    ABSL_ASSIGN_OR_RETURN(const RunResult result, ReadRunLog(path));
    if (runs.steps.has_value() && *runs.steps != result.steps) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": a run of ", result.steps, " steps, but ", paths.front(), " has ",
                       *runs.steps, "; give runs of one program, and others as --baseline"));
    }
    runs.steps = result.steps;
    runs.losses.push_back(result.val_loss);
    runs.times_s.push_back(result.train_ms / 1000);
  }
  return runs;
}

absl::StatusOr<std::vector<double>> ParseList(absl::string_view flag, absl::string_view text) {
  std::vector<double> values;
  if (text.empty()) return values;
  const std::vector<absl::string_view> items = absl::StrSplit(text, ',');
  for (const absl::string_view item : items) {
    double value = 0;
    if (!absl::SimpleAtod(item, &value) || !std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": value ", values.size() + 1, " is \"", item,
                       "\"; give positive numbers with commas between them"));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace tools
