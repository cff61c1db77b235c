// The lines that trainers print, this one and the PyTorch original:
//
//   step:250/1680 val_loss:4.1234 train_time:14532ms step_avg:58.13ms
//   step:251/1680 train_time:14590ms step_avg:58.13ms
//   step:125/3200 val_loss:4.82555 train_time:99.402s step_avg:795.22ms
//
// The last is the form of the original's track 3, whose clock counts seconds.
#ifndef TOOLS_RUN_LOGS_LOG_LINE_H_
#define TOOLS_RUN_LOGS_LOG_LINE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

struct LogLine {
  int64_t step = 0;
  int64_t total_steps = 0;                // that were asked for
  std::optional<double> val_loss = {};    // nats a token; may be NaN or infinite
  std::optional<double> train_loss = {};  // likewise; only the original's early logs have it
  double train_ms = 0;                    // since the start, validations excluded
};

// Nothing for a line of another kind: the text of the program, which the original's logs begin
// with, has such lines indented and with names in braces for the numbers. InvalidArgument, without
// the place, for a line that begins with step:N/M and does not go on like that. Other fields of the
// form name:value may stand before train_time, as some of the original's logs have them; what comes
// after it is not looked at.
absl::StatusOr<std::optional<LogLine>> ParseLogLine(absl::string_view line);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_LOG_LINE_H_
