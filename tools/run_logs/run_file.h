// Reads one file of a run: what a trainer printed, this one or the PyTorch original, or what it
// wrote with --metrics.
#ifndef TOOLS_RUN_LOGS_RUN_FILE_H_
#define TOOLS_RUN_LOGS_RUN_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/run_logs/run.h"

namespace tools {

enum class FileKind { kPrintedLog, kMetrics, kTrace };

// InvalidArgument, with `path`, for an empty file and one of another kind, with what was expected.
absl::StatusOr<FileKind> KindOf(absl::string_view path, absl::string_view text);

// What is said of a printed log that has no validation.
inline constexpr char kNoValidationLine[] =
    "no line step:N/M val_loss:X train_time:Yms in it; give what a trainer printed, or its "
    "--metrics file";

// The runs of a file, one after another: where the steps begin anew at 0 (of training rows, at 1),
// the next one begins, as trials of one program do that share a log. Each has `path` and, if they
// are several, its number as `trial`.
//
// A file that is cut off anywhere has its rows up to there, with a note. A line or row in the
// middle that is broken is left out, with a note. DataLoss, with `path`, if nothing is left.
// InvalidArgument, as "PATH:LINE: ...", if after a finished run the steps go back, but not to the
// beginning, or its result is said again and is another.
absl::StatusOr<std::vector<TrainingRun>> ParsePrintedLog(absl::string_view path,
                                                         absl::string_view text);
absl::StatusOr<std::vector<TrainingRun>> ParseMetrics(absl::string_view path,
                                                      absl::string_view text);

// As above, by KindOf: kPrintedLog or kMetrics. CHECKs that.
absl::StatusOr<std::vector<TrainingRun>> ParseRuns(FileKind kind, absl::string_view path,
                                                   absl::string_view text);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_RUN_FILE_H_
