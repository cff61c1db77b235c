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

// The text of `field` after `prefix` as a number, NaN and infinity included.
bool ParseField(absl::string_view field, absl::string_view prefix, double* value) {
  return absl::ConsumePrefix(&field, prefix) && absl::SimpleAtod(field, value);
}

bool ParseSteps(absl::string_view field, int64_t* step, int64_t* total_steps) {
  if (!absl::ConsumePrefix(&field, "step:")) return false;
  const std::vector<absl::string_view> numbers = absl::StrSplit(field, '/');
  return numbers.size() == 2 && absl::SimpleAtoi(numbers[0], step) &&
         absl::SimpleAtoi(numbers[1], total_steps);
}

// "14532ms", or "14.532s" of the original's track 3.
bool ParseTime(absl::string_view field, double* ms) {
  if (!absl::ConsumePrefix(&field, "train_time:")) return false;
  if (absl::ConsumeSuffix(&field, "ms")) return absl::SimpleAtod(field, ms);
  double seconds = 0;
  if (!absl::ConsumeSuffix(&field, "s") || !absl::SimpleAtod(field, &seconds)) return false;
  *ms = 1000 * seconds;
  return true;
}

// The fields from `next` up to the one that begins with train_time:. False if there is none, or
// something between is no name:value.
bool SkipToTime(const std::vector<absl::string_view>& fields, size_t* next) {
  for (; *next < fields.size(); ++*next) {
    if (absl::StartsWith(fields[*next], "train_time:")) return true;
    const size_t colon = fields[*next].find(':');
    if (colon == 0 || colon == absl::string_view::npos) return false;
  }
  return false;
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
    good = ParseField(fields[next++], "val_loss:", &loss);
    parsed.val_loss = loss;
  } else if (next < fields.size() && absl::StartsWith(fields[next], "train_loss:")) {
    good = ParseField(fields[next++], "train_loss:", &loss);
    parsed.train_loss = loss;
  }
  good = good && SkipToTime(fields, &next) && ParseTime(fields[next], &parsed.train_ms);
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", line, "\" is no ", parsed.val_loss.has_value() ? "validation" : "training",
        " line; it needs the form step:N/M ", parsed.val_loss.has_value() ? "val_loss:X " : "",
        "train_time:Yms or Ys"));
  }
  return {parsed};
}

}  // namespace tools
