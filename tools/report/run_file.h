// Reads one file of a run: what a trainer printed, this one or the PyTorch original, or what it
// wrote with --metrics.
#ifndef TOOLS_REPORT_RUN_FILE_H_
#define TOOLS_REPORT_RUN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/report/run.h"

namespace tools {

enum class FileKind { kPrintedLog, kMetrics, kTrace };

// InvalidArgument, with `path`, for an empty file and one of another kind, with what was expected.
absl::StatusOr<FileKind> KindOf(absl::string_view path, absl::string_view text);

// The rows of a file that is cut off anywhere, up to there, with a note. A line or row in the
// middle that is broken is left out, with a note. DataLoss, with `path`, if nothing is left.
// InvalidArgument if the file holds two runs.
absl::StatusOr<TrainingRun> ParsePrintedLog(absl::string_view path, absl::string_view text);
absl::StatusOr<TrainingRun> ParseMetrics(absl::string_view path, absl::string_view text);

}  // namespace tools

#endif  // TOOLS_REPORT_RUN_FILE_H_
