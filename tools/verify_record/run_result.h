// The final loss and time of a finished run.
#ifndef TOOLS_VERIFY_RECORD_RUN_RESULT_H_
#define TOOLS_VERIFY_RECORD_RUN_RESULT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/run_logs/run.h"

namespace tools {

struct RunResult {
  int64_t steps = 0;
  double val_loss = 0;  // nats per token, at the last step
  double train_ms = 0;  // spent in training, validations excluded
};

// `run` as RunList has it, before Complete(). It must have ended with a validation, after all steps
// that were asked for if a printed log says how many; a metrics file alone does not, and runs of
// different lengths are for the caller to find. No line of a validation may be broken.
//
// DataLoss, with the file and line, for a run that was cut off or did not finish; InvalidArgument
// if its result is not a positive number.
absl::StatusOr<RunResult> ResultOf(const TrainingRun& run);

// The result of the only run in a file's text (see run_logs/run_file.h). `name` is for messages.
// InvalidArgument if there are several.
absl::StatusOr<RunResult> ParseRunLog(absl::string_view name, absl::string_view text);

// As above, from a file. NotFound or InvalidArgument if it cannot be read.
absl::StatusOr<RunResult> ReadRunLog(const std::string& path);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_RUN_RESULT_H_
