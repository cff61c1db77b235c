#include "tools/verify_record/run_set.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/run_logs/matching_files.h"
#include "tools/run_logs/run_file.h"
#include "tools/run_logs/run_list.h"
#include "tools/verify_record/run_result.h"

namespace tools {

namespace {

constexpr char kBaseline[] = "baseline";

absl::Status AddFiles(const std::vector<std::string>& patterns, const std::string& group,
                      FileSet* seen, RunList* list, std::vector<std::string>* notes) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListLogs(patterns));
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool named = std::find(patterns.begin(), patterns.end(), path) != patterns.end();
    if (!named && std::filesystem::is_directory(path, ignored)) {
      notes->push_back(absl::StrCat(path, ": a folder, passed over"));
      continue;
    }
    ABSL_ASSIGN_OR_RETURN(const bool is_new, seen->Add(path, notes));
    if (!is_new) continue;
    ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    ABSL_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path, text));
    if (kind == FileKind::kTrace) {
      notes->push_back(absl::StrCat(path, ": a trace, passed over"));
      continue;
    }
    ABSL_RETURN_IF_ERROR(list->Add({path, "", group}, kind, text));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunSet> SetOf(const std::vector<const TrainingRun*>& runs) {
  RunSet set;
  for (const TrainingRun* run : runs) {
    ABSL_ASSIGN_OR_RETURN(const RunResult result, ResultOf(*run));
    if (set.steps.has_value() && *set.steps != result.steps) {
      return absl::InvalidArgumentError(absl::StrCat(
          RunText(*run), ": a run of ", result.steps, " steps, but ", RunText(*runs.front()),
          " has ", *set.steps, "; give runs of one program, and others as --baseline"));
    }
    set.steps = result.steps;
    set.losses.push_back(result.val_loss);
    set.times_s.push_back(result.train_ms / 1000);
  }
  const std::string repeated = RepeatedRun(runs);
  if (!repeated.empty()) return absl::InvalidArgumentError(repeated);
  return set;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListLogs(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& list : patterns) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> found, MatchingFilesOfList(list));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  std::sort(paths.begin(), paths.end());
  const auto twice = std::adjacent_find(paths.begin(), paths.end());
  if (twice != paths.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*twice, ": given twice, but it is one run; name each log once"));
  }
  return paths;
}

absl::StatusOr<RunSets> ReadRunSets(const std::vector<std::string>& runs,
                                    const std::vector<std::string>& baseline) {
  RunSets sets;
  FileSet seen;
  RunList list;
  ABSL_RETURN_IF_ERROR(AddFiles(runs, "", &seen, &list, &sets.notes));
  ABSL_RETURN_IF_ERROR(AddFiles(baseline, kBaseline, &seen, &list, &sets.notes));
  ABSL_ASSIGN_OR_RETURN(const std::vector<TrainingRun> all, list.Take());
  std::vector<const TrainingRun*> own, others;
  for (const TrainingRun& run : all) {
    (run.group.empty() ? own : others).push_back(&run);
    if (run.paths.size() > 1) {
      sets.notes.push_back(absl::StrCat(RunText(run), " are one run"));
    }
  }
  ABSL_ASSIGN_OR_RETURN(sets.runs, SetOf(own));
  ABSL_ASSIGN_OR_RETURN(sets.baseline, SetOf(others));
  return sets;
}

absl::StatusOr<std::vector<double>> ParseList(absl::string_view flag, absl::string_view text) {
  std::vector<double> values;
  if (text.empty()) return values;
  const std::vector<absl::string_view> items = absl::StrSplit(text, ',');
  for (const absl::string_view item : items) {
    double value = 0;
    if (!absl::SimpleAtod(item, &value) || !std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": value ", values.size() + 1, " is \"", item,
                       "\"; give positive numbers with commas between them"));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace tools
