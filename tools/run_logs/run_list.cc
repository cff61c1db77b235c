#include "tools/run_logs/run_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/run_logs/run_compare.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

size_t Rows(const TrainingRun& run) { return run.steps.size() + run.validations.size(); }

void GoOn(const TrainingRun& later, TrainingRun* run) {
  const int64_t begin = FirstStep(later);
  run->notes.push_back(absl::StrCat(RunText(later), " goes on from step ", begin, " of ",
                                    RunText(*run), ": one run, which was resumed"));
  std::erase_if(run->steps, [&](const StepRow& row) { return row.step > begin; });
  const bool again = ValidationAt(later, begin) != nullptr;
  std::erase_if(run->validations, [&](const ValidationRow& row) {
    return row.step > begin || (again && row.step == begin);
  });
  run->steps.insert(run->steps.end(), later.steps.begin(), later.steps.end());
  run->validations.insert(run->validations.end(), later.validations.begin(),
                          later.validations.end());
  if (later.peak_mib.has_value()) run->peak_mib = later.peak_mib;
  run->paths.insert(run->paths.end(), later.paths.begin(), later.paths.end());
  run->notes.insert(run->notes.end(), later.notes.begin(), later.notes.end());
  // Where the earlier log was cut off, the later one says it again.
  std::erase_if(run->broken_lines, [](const BrokenLine& broken) { return broken.last; });
  run->broken_lines.insert(run->broken_lines.end(), later.broken_lines.begin(),
                           later.broken_lines.end());
}

std::string SameValidations(const TrainingRun& a, const TrainingRun& b) {
  return absl::StrCat(RunText(a), " and ", RunText(b),
                      " have the same validations, and count as one run");
}

std::string GroupText(const TrainingRun& run) {
  return run.group.empty() ? "no group" : absl::StrCat("group ", run.group);
}

absl::Status CheckGroups(const TrainingRun& a, const TrainingRun& b) {
  if (a.group == b.group) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(RunText(a), " and ", RunText(b),
                                                 " are of one run, but have different groups, ",
                                                 GroupText(a), " and ", GroupText(b)));
}

// The metrics have more of each step; the log has the number of steps that were asked for.
absl::StatusOr<TrainingRun> Join(const TrainingRun& log, TrainingRun metrics) {
  ABSL_RETURN_IF_ERROR(CheckGroups(log, metrics));
  for (const ValidationRow& a : log.validations) {
    for (const ValidationRow& b : metrics.validations) {
      // A log has four digits after the point.
      if (a.step != b.step || Near(a.loss, b.loss, kPrintedLoss)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(RunText(log), " and ", RunText(metrics),
                       " are called the same, but their validation losses at step ", a.step,
                       " are ", a.loss, " and ", b.loss, "; give each run a name of its own"));
    }
  }
  if (log.last_step() != metrics.last_step()) {
    metrics.notes.push_back(absl::StrCat("the log ends at step ", log.last_step(),
                                         " and the metrics at step ", metrics.last_step(),
                                         "; the curves are those of the metrics"));
  }
  std::map<int64_t, std::optional<double>> times;
  for (const StepRow& row : log.steps) times[row.step] = row.train_ms;
  for (StepRow& row : metrics.steps) {
    if (const auto time = times.find(row.step); time != times.end()) row.train_ms = time->second;
  }
  metrics.planned_steps = log.planned_steps;
  metrics.peak_mib = log.peak_mib;
  metrics.batch_tokens = log.batch_tokens;
  if (metrics.name.empty()) metrics.name = log.name;
  metrics.paths.insert(metrics.paths.begin(), log.paths.begin(), log.paths.end());
  for (const ValidationRow& row : log.validations) {
    if (ValidationAt(metrics, row.step) == nullptr) metrics.validations.push_back(row);
  }
  std::stable_sort(metrics.validations.begin(), metrics.validations.end(),
                   [](const ValidationRow& a, const ValidationRow& b) { return a.step < b.step; });
  metrics.broken_lines.insert(metrics.broken_lines.end(), log.broken_lines.begin(),
                              log.broken_lines.end());
  for (const std::string& note : log.notes) {
    const auto& notes = metrics.notes;
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) metrics.notes.push_back(note);
  }
  return metrics;
}

}  // namespace

absl::StatusOr<bool> FileSet::Add(const std::string& path, std::vector<std::string>* notes) {
  const std::string normal = fs::absolute(path).lexically_normal().string();
  if (!names_.emplace(normal, path).second) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": given twice, but it is one file; name each once"));
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return true;  // reading it tells what is wrong
  const auto [place, is_new] = files_.emplace(absl::StrCat(info.st_dev, ":", info.st_ino), path);
  if (!is_new) {
    notes->push_back(absl::StrCat(path, " is a link to ", place->second, ", and counts once"));
  }
  return is_new;
}

absl::Status RunList::Add(const Place& place, FileKind kind, absl::string_view text) {
  ABSL_ASSIGN_OR_RETURN(std::vector<TrainingRun> runs, ParseRuns(kind, place.path, text));
  for (TrainingRun& run : runs) {
    const std::string number = run.trial > 0 ? absl::StrCat("#", run.trial) : "";
    File file;
    file.order = added_++;
    file.named = !place.name.empty();
    file.key = absl::StrCat(
        file.named ? absl::StrCat(place.group, ":", place.name)
                   : absl::StrCat("/", fs::path(place.path).replace_extension().string()),
        number);
    if (file.named) run.name = absl::StrCat(place.name, number);
    run.group = place.group;
    file.run = std::move(run);
    file.parts = {file.run};
    (kind == FileKind::kMetrics ? metrics_ : logs_).push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunList::File> RunList::Merged(File file, File other) {
  ABSL_RETURN_IF_ERROR(CheckGroups(file.run, other.run));
  const std::string note = SameValidations(file.run, other.run);
  std::vector<std::string> paths = file.run.paths;
  paths.insert(paths.end(), other.run.paths.begin(), other.run.paths.end());
  File merged = Rows(other.run) > Rows(file.run) ? other : file;
  merged.order = std::min(file.order, other.order);
  merged.named = file.named || other.named;
  if (merged.run.name.empty()) {
    const File& named = file.named ? file : other;
    merged.run.name = named.run.name;
    if (named.named) merged.key = named.key;
  }
  merged.run.paths = std::move(paths);
  merged.run.notes.push_back(note);
  merged.parts = std::move(file.parts);
  merged.parts.insert(merged.parts.end(), other.parts.begin(), other.parts.end());
  return merged;
}

absl::StatusOr<std::vector<RunList::File>> RunList::MergeSame(std::vector<File> files) {
  std::vector<File> merged;
  for (File& file : files) {
    std::vector<File> others;
    for (File& other : merged) {
      for (const TrainingRun& part : other.parts) {
        if (!SameRows(part, file.run)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(RunText(part), " and ", RunText(file.run),
                         " are copies of one run, with the same rows; give one of them"));
      }
      const bool same = SamePlan(other.run, file.run) &&
                        (Covers(other.run, file.run) || Covers(file.run, other.run)) &&
                        Compare(other.run, file.run, 0, 0).OneRun();
      if (!same) {
        others.push_back(std::move(other));
        continue;
      }
      ABSL_ASSIGN_OR_RETURN(file, Merged(std::move(other), std::move(file)));
    }
    others.push_back(std::move(file));
    merged = std::move(others);
  }
  return merged;
}

std::vector<RunList::File> RunList::JoinResumed(std::vector<File> files) {
  // Of a run that was resumed twice, the earlier log goes first.
  std::vector<size_t> order(files.size());
  for (size_t i = 0; i < files.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return FirstStep(files[a].run) < FirstStep(files[b].run);
  });
  std::vector<bool> gone(files.size(), false);
  for (const size_t i : order) {
    if (FirstStep(files[i].run) <= 0) continue;
    std::vector<size_t> earlier;
    for (size_t k = 0; k < files.size(); ++k) {
      if (k != i && !gone[k] && MayGoOn(files[k].run, files[i].run)) earlier.push_back(k);
    }
    if (earlier.size() == 1) {
      GoOn(files[i].run, &files[earlier[0]].run);
      files[earlier[0]].order = std::min(files[earlier[0]].order, files[i].order);
      gone[i] = true;
    } else if (earlier.size() > 1) {
      std::vector<std::string> names;
      for (const size_t k : earlier) names.push_back(RunText(files[k].run));
      files[i].run.notes.push_back(absl::StrCat("begins at step ", FirstStep(files[i].run),
                                                ", and could go on from any of ",
                                                absl::StrJoin(names, ", "), "; it was left alone"));
    }
  }
  std::vector<File> left;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!gone[i]) left.push_back(std::move(files[i]));
  }
  return left;
}

absl::Status RunList::CheckNames(const std::vector<File>& files) {
  std::map<std::string, const File*> named;
  for (const File& file : files) {
    if (!file.named) continue;
    const auto [other, is_new] = named.emplace(file.key, &file);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        RunText(other->second->run), " and ", RunText(file.run), " are both called ", file.run.name,
        "; NAME= is for one run; give each its own, or GROUP: for several"));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RunList::LogOf(const File& half, const std::vector<File>& logs,
                                      const std::vector<bool>& taken) {
  std::vector<size_t> same;
  for (size_t i = 0; i < logs.size(); ++i) {
    if (!taken[i] && logs[i].key == half.key) return i;
    if (!taken[i] && Compare(logs[i].run, half.run, kPrintedLoss, kPrintedMs).OneRun()) {
      same.push_back(i);
    }
  }
  if (same.empty()) return logs.size();
  if (same.size() == 1) return same[0];
  return absl::InvalidArgumentError(absl::StrCat(
      RunText(half.run), " has the validations of ", RunText(logs[same[0]].run), " and of ",
      RunText(logs[same[1]].run), ", which are not known to be one run; give the files of one"));
}

absl::Status RunList::Pair(File half, std::vector<File>* logs, std::vector<bool>* taken) {
  ABSL_ASSIGN_OR_RETURN(const size_t place, LogOf(half, *logs, *taken));
  if (place == logs->size()) {
    logs->push_back(std::move(half));
    taken->push_back(true);
    return absl::OkStatus();
  }
  File& log = (*logs)[place];
  if (log.key != half.key) half.run.notes.push_back(SameValidations(log.run, half.run));
  ABSL_ASSIGN_OR_RETURN(log.run, Join(log.run, std::move(half.run)));
  log.order = std::min(log.order, half.order);
  (*taken)[place] = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TrainingRun>> RunList::Take() {
  ABSL_ASSIGN_OR_RETURN(std::vector<File> logs, MergeSame(std::exchange(logs_, {})));
  ABSL_ASSIGN_OR_RETURN(std::vector<File> metrics, MergeSame(std::exchange(metrics_, {})));
  logs = JoinResumed(std::move(logs));
  metrics = JoinResumed(std::move(metrics));
  for (const std::vector<File>* files : {&logs, &metrics}) {
    ABSL_RETURN_IF_ERROR(CheckNames(*files));
  }
  // Those that have a log of their name go first, so that no other takes it.
  std::set<std::string> keys;
  for (const File& log : logs) keys.insert(log.key);
  std::stable_partition(metrics.begin(), metrics.end(),
                        [&](const File& half) { return keys.count(half.key) > 0; });
  std::vector<bool> taken(logs.size(), false);
  for (File& half : metrics) ABSL_RETURN_IF_ERROR(Pair(std::move(half), &logs, &taken));
  std::sort(logs.begin(), logs.end(),
            [](const File& a, const File& b) { return a.order < b.order; });
  std::vector<TrainingRun> runs;
  for (File& file : logs) runs.push_back(std::move(file.run));
  added_ = 0;
  return runs;
}

std::string RepeatedRun(const std::vector<const TrainingRun*>& runs) {
  constexpr int64_t kFewest = 4;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const Common common = Compare(*runs[k], *runs[i], kPrintedLoss / 2, 0);
      if (common.validations < kFewest || !common.same_losses) continue;
      return absl::StrCat(
          RunText(*runs[k]), " and ", RunText(*runs[i]), " have the same loss at each of ",
          common.validations,
          " validations: a copy, or the same seed again, which is no second sample; leave one out");
    }
  }
  return "";
}

}  // namespace tools
