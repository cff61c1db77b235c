// Several runs of one program: their final losses and times.
#ifndef TOOLS_VERIFY_RECORD_RUN_SET_H_
#define TOOLS_VERIFY_RECORD_RUN_SET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// Losses and times of logs belong together, one each a log. Lists may differ in length, or one be
// empty: what people publish of a record often does.
struct RunSet {
  std::vector<double> losses = {};    // nats per token
  std::vector<double> times_s = {};   // training alone
  std::optional<int64_t> steps = {};  // of each run; lists do not say

  bool empty() const { return losses.empty() && times_s.empty(); }
};

// Runs whose logs are `paths`. Errors of ReadRunLog; InvalidArgument for runs of different lengths.
absl::StatusOr<RunSet> RunSetOfLogs(const std::vector<std::string>& paths);

// The files that match any of `patterns`, each one or several globs with commas between them,
// sorted. NotFound for a glob without a match; InvalidArgument for a file that is given twice,
// which would count as two runs.
absl::StatusOr<std::vector<std::string>> ListLogs(const std::vector<std::string>& patterns);

// Numbers with commas between them; none for an empty text. InvalidArgument, with the name of
// `flag`, for one that is not a positive finite number.
absl::StatusOr<std::vector<double>> ParseList(absl::string_view flag, absl::string_view text);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_RUN_SET_H_
