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

// The logs of runs and of the runs to compare with, as RunList makes runs of them
// (tools/run_logs/run_list.h): what one run left counts once.
struct RunSets {
  RunSet runs, baseline;
  // What a reader has to know: which files were put together, passed over, or are links.
  std::vector<std::string> notes;
};

// Errors of FileSet, RunList, ReadFile, KindOf and ResultOf. InvalidArgument for runs of different
// lengths in a set, and for two of a set of which one repeats the other (RepeatedRun). Traces, and
// folders that a glob matches, are passed over with a note.
absl::StatusOr<RunSets> ReadRunSets(const std::vector<std::string>& runs,
                                    const std::vector<std::string>& baseline);

// The files that any of `patterns` means, each a name, a glob, or several with commas between them
// (MatchingFilesOfList), sorted. NotFound for a glob without a match; InvalidArgument for a file
// that is given twice, which would count as two runs.
absl::StatusOr<std::vector<std::string>> ListLogs(const std::vector<std::string>& patterns);

// Numbers with commas between them; none for an empty text. InvalidArgument, with the name of
// `flag`, for one that is not a positive finite number.
absl::StatusOr<std::vector<double>> ParseList(absl::string_view flag, absl::string_view text);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_RUN_SET_H_
