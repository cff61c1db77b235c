#include "tools/report/run_file.h"

#include <cmath>
#include <limits>
#include <optional>
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
#include "third_party/absl_compat/status_macros.h"
#include "tools/run_logs/log_line.h"

namespace tools {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A bad line costs itself alone; a reader has to know of each, but not read a thousand notes.
class Faults {
 public:
  void Add(int64_t line, bool last, absl::string_view what) {
    if (last) {
      cut_ = absl::StrCat("line ", line, ", the last, is cut off and was left out");
      return;
    }
    if (first_.empty()) first_ = absl::StrCat("line ", line, " was left out: ", what);
    ++count_;
  }
  void AppendTo(std::vector<std::string>* notes) const {
    if (!first_.empty()) notes->push_back(first_);
    if (count_ > 1) notes->push_back(absl::StrCat(count_ - 1, " more broken lines were left out"));
    if (!cut_.empty()) notes->push_back(cut_);
  }

 private:
  std::string first_, cut_;
  int64_t count_ = 0;
};

double FiniteOrNan(double value) { return std::isfinite(value) ? value : kNan; }

absl::Status Add(const LogLine& line, int64_t number, RunRows* rows) {
  if (line.val_loss.has_value()) {
    return rows->Add(number,
                     ValidationRow{line.step, FiniteOrNan(*line.val_loss), line.train_ms, {}});
  }
  StepRow row;
  row.step = line.step;
  row.train_ms = line.train_ms;
  if (line.train_loss.has_value()) row.loss = FiniteOrNan(*line.train_loss);
  return rows->Add(number, std::move(row));
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
// numbers with commas between them; the head does not say when it does.
void ReadBatch(absl::string_view line, TrainingRun* run) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  int64_t steps = 0, tokens = 0;
  if (fields.size() >= 5 && absl::SimpleAtoi(fields[0], &steps) && fields[1] == "steps" &&
      fields[2] == "of" && absl::SimpleAtoi(fields[3], &tokens) && fields[4] == "tokens") {
    run->batch_tokens = static_cast<double>(tokens);
  }
}

absl::Status In(absl::string_view path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// A number of a metrics row; null, which the file has for what is not finite, is NaN.
bool Read(const nlohmann::json& row, const char* key, std::optional<double>* value) {
  const auto found = row.find(key);
  if (found == row.end()) return true;
  if (!found->is_number() && !found->is_null()) return false;
  *value = found->is_null() ? kNan : found->get<double>();
  return true;
}

// False if the text is no row of a metrics file.
absl::StatusOr<bool> AddMetricsRow(absl::string_view text, int64_t number, RunRows* rows) {
  const nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer() || step->get<int64_t>() < 0) return false;
  if (json.contains("val_loss")) {
    std::optional<double> loss, train_ms;
    if (!Read(json, "val_loss", &loss) || !Read(json, "train_ms", &train_ms)) return false;
    ABSL_RETURN_IF_ERROR(
        rows->Add(number, ValidationRow{step->get<int64_t>(), *loss, train_ms, {}}));
    return true;
  }
  StepRow row;
  row.step = step->get<int64_t>();
  const bool good = Read(json, "loss", &row.loss) && Read(json, "lr", &row.lr) &&
                    Read(json, "momentum", &row.momentum) &&
                    Read(json, "window_tokens", &row.window_tokens) &&
                    Read(json, "tokens", &row.tokens) && Read(json, "step_ms", &row.step_ms) &&
                    Read(json, "tokens_per_s", &row.tokens_per_s);
  if (!good || !row.loss.has_value() || row.step < 1) return false;
  ABSL_RETURN_IF_ERROR(rows->Add(number, std::move(row)));
  return true;
}

bool IsLast(const std::vector<absl::string_view>& lines, size_t i) {
  for (size_t k = i + 1; k < lines.size(); ++k) {
    if (!absl::StripAsciiWhitespace(lines[k]).empty()) return false;
  }
  return true;
}

absl::StatusOr<TrainingRun> Finish(absl::string_view path, const Faults& faults, TrainingRun run,
                                   absl::string_view what) {
  if (run.steps.empty() && run.validations.empty()) {
    return absl::DataLossError(absl::StrCat(path, ": not one whole ", what, " in it"));
  }
  run.paths = {std::string(path)};
  faults.AppendTo(&run.notes);
  return run;
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

absl::StatusOr<TrainingRun> ParsePrintedLog(absl::string_view path, absl::string_view text) {
  TrainingRun run;
  RunRows rows(&run);
  Faults faults;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t number = static_cast<int64_t>(i) + 1;
    const absl::StatusOr<std::optional<LogLine>> line = ParseLogLine(lines[i]);
    if (!line.ok()) {
      faults.Add(number, IsLast(lines, i), line.status().message());
    } else if (!line->has_value()) {
      ReadPeakMemory(lines[i], &run);
      ReadBatch(lines[i], &run);
    } else if (const absl::Status added = Add(**line, number, &rows); !added.ok()) {
      return In(path, added);
    } else {
      run.planned_steps = (*line)->total_steps;
    }
  }
  return Finish(path, faults, std::move(run), "line step:N/M ... train_time:Yms");
}

absl::StatusOr<TrainingRun> ParseMetrics(absl::string_view path, absl::string_view text) {
  TrainingRun run;
  RunRows rows(&run);
  Faults faults;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StripAsciiWhitespace(lines[i]).empty()) continue;
    const int64_t number = static_cast<int64_t>(i) + 1;
    const absl::StatusOr<bool> added = AddMetricsRow(lines[i], number, &rows);
    if (!added.ok()) return In(path, added.status());
    if (*added) continue;
    faults.Add(number, IsLast(lines, i),
               "no JSON object with step and loss, or step and val_loss, as numbers");
  }
  return Finish(path, faults, std::move(run), "row");
}

}  // namespace tools
