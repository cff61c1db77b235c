#include "tools/verify_record/run_result.h"

#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/run_logs/run_file.h"

namespace tools {
namespace {

constexpr char kOnlyFinished[] = "; only finished runs count";

// "run.txt:7", or the files of a run that has several, whose lines are not told apart.
std::string Place(const TrainingRun& run, int64_t line) {
  return run.paths.size() == 1 ? absl::StrCat(run.paths[0], ":", line) : RunText(run);
}

absl::Status BadLine(const TrainingRun& run, int64_t line, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(Place(run, line), ": ", what));
}

absl::Status CheckPositive(const TrainingRun& run, int64_t line, absl::string_view what,
                           double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Place(run, line), ": ", what, " is ", value,
                   ", not a positive number; leave this run out, and say so"));
}

// A metrics file alone: its last row must be a validation.
absl::Status CheckEndOfMetrics(const TrainingRun& run) {
  for (const BrokenLine& broken : run.broken_lines) {
    if (!broken.last) continue;
    return BadLine(run, broken.line,
                   broken.validation
                       ? broken.what
                       : absl::StrCat("the last row is cut off or no JSON", kOnlyFinished));
  }
  if (run.final_validation() != nullptr) return absl::OkStatus();
  return BadLine(run, run.steps.empty() ? run.validations.back().line : run.steps.back().line,
                 absl::StrCat("the last row is a training step, no validation", kOnlyFinished));
}

absl::Status CheckEndOfLog(const TrainingRun& run) {
  if (run.validations.empty()) {
    return absl::DataLossError(absl::StrCat(RunText(run), ": ", kNoValidationLine));
  }
  if (run.final_validation() != nullptr) return absl::OkStatus();
  const ValidationRow& last = run.validations.back();
  return BadLine(run, last.line,
                 absl::StrCat("the last validation is at step ", last.step, " of ",
                              *run.planned_steps, kOnlyFinished));
}

}  // namespace

absl::StatusOr<RunResult> ResultOf(const TrainingRun& run) {
  for (const BrokenLine& broken : run.broken_lines) {
    if (broken.validation) return BadLine(run, broken.line, broken.what);
  }
  ABSL_RETURN_IF_ERROR(run.planned_steps.has_value() ? CheckEndOfLog(run) : CheckEndOfMetrics(run));
  const ValidationRow& last = *run.final_validation();
  if (!last.train_ms.has_value()) {
    return BadLine(run, last.line, "a validation row needs step, val_loss and train_ms");
  }
  ABSL_RETURN_IF_ERROR(CheckPositive(run, last.line, "the final val_loss", last.loss));
  ABSL_RETURN_IF_ERROR(CheckPositive(run, last.line, "the train time", *last.train_ms));
  return RunResult{last.step, last.loss, *last.train_ms};
}

absl::StatusOr<RunResult> ParseRunLog(absl::string_view name, absl::string_view text) {
  const bool is_metrics = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  const absl::StatusOr<std::vector<TrainingRun>> runs =
      ParseRuns(is_metrics ? FileKind::kMetrics : FileKind::kPrintedLog, name, text);
  if (!runs.ok()) return runs.status();
  if (runs->size() == 1) return ResultOf(runs->front());
  return absl::InvalidArgumentError(absl::StrCat(name, ": has ", runs->size(), " runs, not one"));
}

absl::StatusOr<RunResult> ReadRunLog(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseRunLog(path, text);
}

}  // namespace tools
