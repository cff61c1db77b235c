#include "tools/verify_record/run_result.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/run_logs/log_line.h"

namespace tools {
namespace {

// What a validation line says. `number` is the line's, from 1.
struct ValidationLine {
  int64_t number = 0;
  int64_t total_steps = 0;
  RunResult result;
};

absl::Status BadLine(absl::string_view name, int64_t number, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(name, ":", number, ": ", what));
}

// Nothing for a line of another kind, or of a training step.
absl::StatusOr<std::optional<ValidationLine>> ParseLine(absl::string_view name, int64_t number,
                                                        absl::string_view line) {
  if (!absl::StrContains(line, " val_loss:")) return {std::nullopt};
  const absl::StatusOr<std::optional<LogLine>> parsed = ParseLogLine(line);
  if (!parsed.ok()) {
    const absl::string_view what = parsed.status().message();
    return BadLine(name, number, what);
  }
  if (!parsed->has_value() || !(*parsed)->val_loss.has_value()) return {std::nullopt};
  const LogLine& found = **parsed;
  return {ValidationLine{number, found.total_steps, {found.step, *found.val_loss, found.train_ms}}};
}

absl::Status CheckPositive(absl::string_view name, int64_t number, absl::string_view what,
                           double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ":", number, ": ", what, " is ", value,
                   ", not a positive number; leave this run out, and say so"));
}

absl::Status CheckResult(absl::string_view name, int64_t number, const RunResult& result) {
  ABSL_RETURN_IF_ERROR(CheckPositive(name, number, "the final val_loss", result.val_loss));
  return CheckPositive(name, number, "the train time", result.train_ms);
}

absl::StatusOr<RunResult> ParsePrintedLog(absl::string_view name,
                                          const std::vector<absl::string_view>& lines) {
  std::optional<ValidationLine> last, final;
  for (size_t i = 0; i < lines.size(); ++i) {
    ABSL_ASSIGN_OR_RETURN(const std::optional<ValidationLine> line,
                          ParseLine(name, static_cast<int64_t>(i) + 1, lines[i]));
    if (!line.has_value()) continue;
    last = line;
    if (line->result.steps != line->total_steps) continue;
    // A finished run that is resumed says its result again.
    if (final.has_value() && (final->result.val_loss != line->result.val_loss ||
                              final->result.train_ms != line->result.train_ms)) {
      return BadLine(name, line->number,
                     absl::StrCat("a second finished run, after the one that ends in line ",
                                  final->number, "; give each run a file of its own"));
    }
    final = line;
  }
  if (!last.has_value()) {
    return absl::DataLossError(
        absl::StrCat(name, ": no line step:N/M val_loss:X train_time:Yms among its ", lines.size(),
                     "; give what a trainer printed, or its --metrics file"));
  }
  if (last->result.steps != last->total_steps) {
    return BadLine(name, last->number,
                   absl::StrCat("the last validation is at step ", last->result.steps, " of ",
                                last->total_steps, "; only finished runs count"));
  }
  ABSL_RETURN_IF_ERROR(CheckResult(name, last->number, last->result));
  return last->result;
}

// A number, or NaN for null, which the metrics file has in place of NaN and infinity.
bool GetNumber(const nlohmann::json& row, const char* key, double* value) {
  const auto found = row.find(key);
  if (found == row.end() || !(found->is_number() || found->is_null())) return false;
  *value = found->is_null() ? std::nan("") : found->get<double>();
  return true;
}

absl::StatusOr<RunResult> ParseMetrics(absl::string_view name,
                                       const std::vector<absl::string_view>& lines) {
  int64_t number = static_cast<int64_t>(lines.size());
  while (absl::StripAsciiWhitespace(lines[number - 1]).empty()) --number;
  const absl::string_view line = lines[number - 1];
  const nlohmann::json row =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) {
    return BadLine(name, number, "the last row is cut off or no JSON; only finished runs count");
  }
  if (!row.contains("val_loss")) {
    return BadLine(name, number,
                   "the last row is a training step, no validation; only finished runs count");
  }
  RunResult result;
  const auto step = row.find("step");
  if (step == row.end() || !step->is_number_integer() ||
      !GetNumber(row, "val_loss", &result.val_loss) ||
      !GetNumber(row, "train_ms", &result.train_ms)) {
    return BadLine(name, number, "a validation row needs step, val_loss and train_ms");
  }
  result.steps = step->get<int64_t>();
  ABSL_RETURN_IF_ERROR(CheckResult(name, number, result));
  return result;
}

}  // namespace

absl::StatusOr<RunResult> ParseRunLog(absl::string_view name, absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const bool is_metrics = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  return is_metrics ? ParseMetrics(name, lines) : ParsePrintedLog(name, lines);
}

absl::StatusOr<RunResult> ReadRunLog(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseRunLog(path, text);
}

}  // namespace tools
