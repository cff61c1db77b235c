#include "tools/run_logs/run_file.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/run_logs/log_line.h"

namespace tools {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double FiniteOrNan(double value) { return std::isfinite(value) ? value : kNan; }

// The runs of a file as they are read.
class RunsOfFile {
 public:
  explicit RunsOfFile(absl::string_view path) : path_(path) { Begin(); }

  // Of the run that the last row belongs to; before the first row, of the first.
  TrainingRun& run() { return *runs_.back(); }

  absl::Status Add(int64_t line, StepRow row) {
    if (row.step <= 1 && row.step <= run().last_step()) BeginUnlessEmpty();
    row.line = line;
    if (row.step <= run().last_step() && Finished()) return AnotherRun(line, "a second run");
    return Named(rows_->Add(line, std::move(row)));
  }
  // `total_steps`: that were asked for, if the file says.
  absl::Status Add(int64_t line, ValidationRow row, std::optional<int64_t> total_steps) {
    if (row.step == 0 && run().last_step() > 0) BeginUnlessEmpty();
    row.line = line;
    if (Finished() && row.step <= run().last_step() && !SaysTheSame(row)) {
      return AnotherRun(line, row.step == total_steps ? "a second finished run" : "a second run");
    }
    return Named(rows_->Add(line, row));
  }

  // A bad line costs itself alone.
  void AddBroken(BrokenLine line) { run().broken_lines.push_back(std::move(line)); }

  // `none`: what to say of a file without rows.
  absl::StatusOr<std::vector<TrainingRun>> Take(absl::string_view none) {
    std::vector<TrainingRun> taken;
    for (std::unique_ptr<TrainingRun>& run : runs_) {
      if (run->steps.empty() && run->validations.empty()) continue;
      run->paths = {path_};
      if (runs_.size() > 1) run->trial = static_cast<int64_t>(taken.size()) + 1;
      NoteBrokenLines(run.get());
      taken.push_back(std::move(*run));
    }
    if (!taken.empty()) return taken;
    for (const BrokenLine& broken : run().broken_lines) {
      if (!broken.validation) continue;
      return absl::DataLossError(absl::StrCat(path_, ":", broken.line, ": ", broken.what));
    }
    return absl::DataLossError(absl::StrCat(path_, ": ", none));
  }

 private:
  void Begin() {
    runs_.push_back(std::make_unique<TrainingRun>());
    rows_ = std::make_unique<RunRows>(runs_.back().get());
  }
  void BeginUnlessEmpty() {
    if (!run().steps.empty() || run().last_step() > 0) Begin();
  }
  // Metrics do not say how many steps were asked for, so that none of them is known to be finished.
  bool Finished() { return run().planned_steps.has_value() && run().final_validation() != nullptr; }
  bool SaysTheSame(const ValidationRow& row) {
    const ValidationRow& last = run().validations.back();
    const bool loss =
        row.loss == last.loss || (!std::isfinite(row.loss) && !std::isfinite(last.loss));
    return row.step == last.step && loss && row.train_ms == last.train_ms;
  }
  absl::Status AnotherRun(int64_t line, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", line, ": ", what, ", after the one that ends in line ",
                     run().validations.back().line, "; give each run a file of its own"));
  }
  absl::Status Named(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
  }

  // A reader has to know of each, but not read a thousand notes.
  static void NoteBrokenLines(TrainingRun* run) {
    int64_t more = -1;
    std::string cut;
    for (const BrokenLine& broken : run->broken_lines) {
      if (broken.last) {
        cut = absl::StrCat("line ", broken.line, ", the last, is cut off and was left out");
      } else if (++more == 0) {
        run->notes.push_back(absl::StrCat("line ", broken.line, " was left out: ", broken.what));
      }
    }
    if (more > 0) run->notes.push_back(absl::StrCat(more, " more broken lines were left out"));
    if (!cut.empty()) run->notes.push_back(cut);
  }

  const std::string path_;
  std::vector<std::unique_ptr<TrainingRun>> runs_;
  std::unique_ptr<RunRows> rows_;  // of the last of them
};

absl::Status Add(const LogLine& line, int64_t number, RunsOfFile* runs) {
  if (line.val_loss.has_value()) {
    return runs->Add(number, ValidationRow{line.step, *line.val_loss, line.train_ms, {}},
                     line.total_steps);
  }
  StepRow row;
  row.step = line.step;
  row.train_ms = line.train_ms;
  if (line.train_loss.has_value()) row.loss = FiniteOrNan(*line.train_loss);
  return runs->Add(number, std::move(row));
}

// "peak memory allocated: 30760 MiB reserved: 45914 MiB" of the original.
void ReadPeakMemory(absl::string_view line, TrainingRun* run) {
  if (!absl::ConsumePrefix(&line, "peak memory allocated: ")) return;
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  double mib = 0;
  if (fields.size() >= 2 && fields[1] == "MiB" && absl::SimpleAtod(fields[0], &mib)) {
    run->peak_mib = mib;
  }
}

// "40 steps of 2048 tokens in 8 slots, ..." of our own logs' head. A batch that grows has several
// numbers with commas between them; the head does not say when it does. The head comes before the
// rows of its run.
void ReadBatch(absl::string_view line, std::optional<double>* batch_tokens) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  int64_t steps = 0, tokens = 0;
  if (fields.size() >= 5 && absl::SimpleAtoi(fields[0], &steps) && fields[1] == "steps" &&
      fields[2] == "of" && absl::SimpleAtoi(fields[3], &tokens) && fields[4] == "tokens") {
    *batch_tokens = static_cast<double>(tokens);
  }
}

// A number of a metrics row; null, which the file has for what is not finite, is NaN.
bool Read(const nlohmann::json& row, const char* key, std::optional<double>* value) {
  const auto found = row.find(key);
  if (found == row.end()) return true;
  if (!found->is_number() && !found->is_null()) return false;
  *value = found->is_null() ? kNan : found->get<double>();
  return true;
}

// Sets `broken`, and nothing else, if the text is no row of a metrics file.
absl::Status AddMetricsRow(absl::string_view text, int64_t number, RunsOfFile* runs,
                           std::optional<BrokenLine>* broken) {
  const nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const bool validation = json.is_object() && json.contains("val_loss");
  const auto is_broken = [&](absl::string_view what) {
    *broken = BrokenLine{number, false, validation, std::string(what)};
    return absl::OkStatus();
  };
  const auto step = json.is_object() ? json.find("step") : json.end();
  const bool has_step =
      json.is_object() && step != json.end() && step->is_number_integer() && *step >= 0;
  if (validation) {
    std::optional<double> loss, train_ms;
    if (!has_step || !Read(json, "val_loss", &loss) || !Read(json, "train_ms", &train_ms)) {
      return is_broken("a validation row needs step, val_loss and train_ms, as numbers");
    }
    return runs->Add(number, ValidationRow{step->get<int64_t>(), *loss, train_ms, {}}, {});
  }
  StepRow row;
  const bool good = has_step && Read(json, "loss", &row.loss) && Read(json, "lr", &row.lr) &&
                    Read(json, "momentum", &row.momentum) &&
                    Read(json, "window_tokens", &row.window_tokens) &&
                    Read(json, "tokens", &row.tokens) && Read(json, "step_ms", &row.step_ms) &&
                    Read(json, "tokens_per_s", &row.tokens_per_s);
  if (good) row.step = step->get<int64_t>();
  if (!good || !row.loss.has_value() || row.step < 1) {
    return is_broken("no JSON object with step and loss, or step and val_loss, as numbers");
  }
  return runs->Add(number, std::move(row));
}

bool IsLast(const std::vector<absl::string_view>& lines, size_t i) {
  for (size_t k = i + 1; k < lines.size(); ++k) {
    if (!absl::StripAsciiWhitespace(lines[k]).empty()) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<FileKind> KindOf(absl::string_view path, absl::string_view text) {
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(text);
  if (start.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  }
  if (start[0] == '{') {
    const absl::string_view line = start.substr(0, start.find('\n'));
    if (absl::StrContains(start.substr(0, 4096), "\"traceEvents\"")) return FileKind::kTrace;
    if (absl::StrContains(line, "\"step\"")) return FileKind::kMetrics;
  } else {
    const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    for (const absl::string_view line : lines) {
      const auto parsed = ParseLogLine(line);
      if (!parsed.ok() || parsed->has_value()) return FileKind::kPrintedLog;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      ": neither a printed log (no line step:N/M ... train_time:Yms), nor a --metrics file (JSON "
      "objects with \"step\", one a line), nor a --trace file (\"traceEvents\")"));
}

absl::StatusOr<std::vector<TrainingRun>> ParsePrintedLog(absl::string_view path,
                                                         absl::string_view text) {
  RunsOfFile runs(path);
  std::optional<double> batch_tokens;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t number = static_cast<int64_t>(i) + 1;
    const absl::StatusOr<std::optional<LogLine>> line = ParseLogLine(lines[i]);
    if (!line.ok()) {
      runs.AddBroken({number, IsLast(lines, i), absl::StrContains(lines[i], " val_loss:"),
                      std::string(line.status().message())});
    } else if (!line->has_value()) {
      ReadPeakMemory(lines[i], &runs.run());
      ReadBatch(lines[i], &batch_tokens);
    } else {
      ABSL_RETURN_IF_ERROR(Add(**line, number, &runs));
      runs.run().planned_steps = (*line)->total_steps;
      if (batch_tokens.has_value()) runs.run().batch_tokens = std::exchange(batch_tokens, {});
    }
  }
  return runs.Take(kNoValidationLine);
}

absl::StatusOr<std::vector<TrainingRun>> ParseMetrics(absl::string_view path,
                                                      absl::string_view text) {
  RunsOfFile runs(path);
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StripAsciiWhitespace(lines[i]).empty()) continue;
    std::optional<BrokenLine> broken;
    ABSL_RETURN_IF_ERROR(AddMetricsRow(lines[i], static_cast<int64_t>(i) + 1, &runs, &broken));
    if (!broken.has_value()) continue;
    broken->last = IsLast(lines, i);
    runs.AddBroken(*std::move(broken));
  }
  return runs.Take("not one whole row in it; give a --metrics file, or what a trainer printed");
}

absl::StatusOr<std::vector<TrainingRun>> ParseRuns(FileKind kind, absl::string_view path,
                                                   absl::string_view text) {
  CHECK(kind == FileKind::kPrintedLog || kind == FileKind::kMetrics);
  return kind == FileKind::kMetrics ? ParseMetrics(path, text) : ParsePrintedLog(path, text);
}

}  // namespace tools
