// The final loss and time of a finished run, from its log.
#ifndef TOOLS_VERIFY_RECORD_RUN_RESULT_H_
#define TOOLS_VERIFY_RECORD_RUN_RESULT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

struct RunResult {
  int64_t steps = 0;
  double val_loss = 0;  // nats per token, at the last step
  double train_ms = 0;  // spent in training, validations excluded
};

// `text` is one of
//   - what a trainer printed, this one or the PyTorch original (whose logs begin with the program's
//     own text): the last line that begins with step:N/M and goes on with val_loss:X train_time:Yms
//     counts, and N must be M. A log with two different results at N = M holds two runs.
//   - a --metrics file, one JSON object a line: its last row must be a validation. Such a file does
//     not say how many steps were asked for; runs of different lengths are for the caller to find.
// `name` is for messages. DataLoss if the log is of neither kind, was cut off, or belongs to a run
// that did not finish; InvalidArgument if the result is not a positive number.
absl::StatusOr<RunResult> ParseRunLog(absl::string_view name, absl::string_view text);

// As above, from a file. NotFound or InvalidArgument if it cannot be read.
absl::StatusOr<RunResult> ReadRunLog(const std::string& path);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_RUN_RESULT_H_
