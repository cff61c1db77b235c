#include "tools/run_logs/log_line.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tools {
namespace {

// The text of `field` after `prefix` and before `suffix` as a number, NaN and infinity included.
bool ParseField(absl::string_view field, absl::string_view prefix, absl::string_view suffix,
                double* value) {
  return absl::ConsumePrefix(&field, prefix) && absl::ConsumeSuffix(&field, suffix) &&
         absl::SimpleAtod(field, value);
}

bool ParseSteps(absl::string_view field, int64_t* step, int64_t* total_steps) {
  if (!absl::ConsumePrefix(&field, "step:")) return false;
  const std::vector<absl::string_view> numbers = absl::StrSplit(field, '/');
  return numbers.size() == 2 && absl::SimpleAtoi(numbers[0], step) &&
         absl::SimpleAtoi(numbers[1], total_steps);
}

}  // namespace

absl::StatusOr<std::optional<LogLine>> ParseLogLine(absl::string_view line) {
  line = absl::StripTrailingAsciiWhitespace(line);
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  LogLine parsed;
  if (!ParseSteps(fields[0], &parsed.step, &parsed.total_steps)) return {std::nullopt};
  size_t next = 1;
  bool good = true;
  double loss = 0;
  if (next < fields.size() && absl::StartsWith(fields[next], "val_loss:")) {
    good = ParseField(fields[next++], "val_loss:", "", &loss);
    parsed.val_loss = loss;
  } else if (next < fields.size() && absl::StartsWith(fields[next], "train_loss:")) {
    good = ParseField(fields[next++], "train_loss:", "", &loss);
    parsed.train_loss = loss;
  }
  good = good && next < fields.size() &&
         ParseField(fields[next], "train_time:", "ms", &parsed.train_ms);
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", line, "\" is no ", parsed.val_loss.has_value() ? "validation" : "training",
        " line; it needs the form step:N/M ", parsed.val_loss.has_value() ? "val_loss:X " : "",
        "train_time:Yms"));
  }
  return {parsed};
}

}  // namespace tools
