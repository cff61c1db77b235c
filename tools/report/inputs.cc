#include "tools/report/inputs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/report/run_file.h"
#include "tools/run_logs/matching_files.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

struct Argument {
  std::string text;
  std::string group, name, path;
};

// A mark that comes after a slash is part of a path.
bool SplitAt(char mark, std::string* head, std::string* rest) {
  const size_t at = rest->find_first_of(absl::StrCat(std::string(1, mark), "/"));
  if (at == std::string::npos || at == 0 || (*rest)[at] != mark) return false;
  *head = rest->substr(0, at);
  *rest = rest->substr(at + 1);
  return true;
}

Argument ParseArgument(const std::string& text) {
  Argument argument = {text, "", "", text};
  if (MatchingFiles(text).ok()) return argument;
  const size_t equals = text.find('=');
  if (text.find(':') < equals) SplitAt(':', &argument.group, &argument.path);
  SplitAt('=', &argument.name, &argument.path);
  return argument;
}

bool IsReadOfFolder(const fs::path& path) {
  static const std::set<std::string> kEndings = {".log", ".txt", ".jsonl", ".json"};
  return kEndings.count(path.extension().string()) > 0;
}

absl::Status AppendFolder(const std::string& folder, std::vector<std::string>* files,
                          std::vector<std::string>* notes) {
  std::vector<std::string> read, others;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // a dangling link is no file
    const bool is_file = fs::is_regular_file(it->path(), ignored);
    (is_file && IsReadOfFolder(it->path()) ? read : others).push_back(it->path().string());
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": cannot read this folder: ", error.message()));
  }
  if (read.empty()) {
    return absl::NotFoundError(absl::StrCat(
        folder, ": no file ending in .log, .txt, .jsonl or .json in this folder; give the files"));
  }
  std::sort(read.begin(), read.end());
  std::sort(others.begin(), others.end());
  if (!others.empty()) {
    notes->push_back(absl::StrCat("not read, for their names: ", absl::StrJoin(others, ", ")));
  }
  files->insert(files->end(), read.begin(), read.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path,
                                                 std::vector<std::string>* notes) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> found, MatchingFiles(path));
  std::vector<std::string> files;
  for (const std::string& match : found) {
    if (fs::is_directory(match)) {
      ABSL_RETURN_IF_ERROR(AppendFolder(match, &files, notes));
    } else {
      files.push_back(match);
    }
  }
  return files;
}

// One of the two files of a run.
struct Half {
  TrainingRun run;
  FileKind kind;
};

// The metrics have more of each step; the log has the number of steps that were asked for.
absl::StatusOr<TrainingRun> Join(TrainingRun log, TrainingRun metrics) {
  for (const ValidationRow& a : log.validations) {
    for (const ValidationRow& b : metrics.validations) {
      // A log has four digits after the point.
      if (a.step != b.step || !(std::abs(a.loss - b.loss) > 1e-4)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          log.paths[0], " and ", metrics.paths[0],
          " are called the same, but their validation losses at step ", a.step, " are ", a.loss,
          " and ", b.loss, "; give them names of their own with NAME=PATH"));
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
  metrics.paths.insert(metrics.paths.begin(), log.paths[0]);
  for (std::string& note : log.notes) {
    const auto& notes = metrics.notes;
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
      metrics.notes.push_back(std::move(note));
    }
  }
  return metrics;
}

// The last `parts` parts of a path, without its ending.
std::string ShortName(const fs::path& path, size_t parts) {
  fs::path name = path.stem();
  fs::path folder = path.parent_path();
  for (size_t i = 1; i < parts && folder.has_filename(); ++i) {
    name = folder.filename() / name;
    folder = folder.parent_path();
  }
  return name.string();
}

// Names for those that have none: so many last parts of each path as make all differ.
template <typename Named, typename PathOf>
absl::Status GiveNames(const PathOf& path_of, std::vector<Named>* all) {
  constexpr size_t kMostParts = 32;
  std::vector<size_t> nameless;
  for (size_t i = 0; i < all->size(); ++i) {
    if ((*all)[i].name.empty()) nameless.push_back(i);
  }
  for (size_t parts = 1; parts <= kMostParts; ++parts) {
    for (const size_t i : nameless) (*all)[i].name = ShortName(path_of((*all)[i]), parts);
    std::map<std::string, int> uses;
    for (const Named& one : *all) ++uses[one.name];
    const auto twice =
        std::find_if(uses.begin(), uses.end(), [](const auto& use) { return use.second > 1; });
    if (twice == uses.end()) return absl::OkStatus();
    if (nameless.empty() || parts == kMostParts) {
      return absl::InvalidArgumentError(
          absl::StrCat("two runs are called \"", twice->first,
                       "\"; give each a name of its own with NAME=PATH"));
    }
  }
  return absl::OkStatus();
}

// Collects the halves under what they are called.
class RunList {
 public:
  absl::Status Add(const Argument& argument, const std::string& path, FileKind kind,
                   TrainingRun run) {
    const std::string key = !argument.name.empty()
                                ? absl::StrCat(argument.group, ":", argument.name)
                                : absl::StrCat("/", fs::path(path).replace_extension().string());
    run.name = argument.name;
    run.group = argument.group;
    const auto before = places_.find(key);
    if (before == places_.end()) {
      places_[key] = halves_.size();
      halves_.push_back({std::move(run), kind});
      return absl::OkStatus();
    }
    Half& other = halves_[before->second];
    if (other.kind == kind || other.run.paths.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(other.run.paths[0], " and ", path, " are both called ",
                       argument.name.empty() ? ShortName(path, 1) : argument.name,
                       "; NAME= is for one run; give each its own, or GROUP: for several"));
    }
    if (run.group != other.run.group) {
      return absl::InvalidArgumentError(absl::StrCat(other.run.paths[0], " and ", path,
                                                     " are of one run, but have different groups"));
    }
    TrainingRun& log = kind == FileKind::kPrintedLog ? run : other.run;
    TrainingRun& metrics = kind == FileKind::kPrintedLog ? other.run : run;
    ABSL_ASSIGN_OR_RETURN(other.run, Join(std::move(log), std::move(metrics)));
    return absl::OkStatus();
  }

  std::vector<TrainingRun> Take() {
    std::vector<TrainingRun> runs;
    for (Half& half : halves_) runs.push_back(std::move(half.run));
    return runs;
  }

 private:
  std::vector<Half> halves_;
  std::map<std::string, size_t> places_;
};

absl::Status AddFile(const Argument& argument, const std::string& path, RunList* runs,
                     std::vector<TraceFile>* traces) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ABSL_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path, text));
  if (kind == FileKind::kTrace) {
    ABSL_ASSIGN_OR_RETURN(TraceFile trace, ParseTrace(path, text));
    trace.name = argument.name;
    traces->push_back(std::move(trace));
    return absl::OkStatus();
  }
  ABSL_ASSIGN_OR_RETURN(TrainingRun run, kind == FileKind::kMetrics ? ParseMetrics(path, text)
                                                                    : ParsePrintedLog(path, text));
  return runs->Add(argument, path, kind, std::move(run));
}

}  // namespace

absl::StatusOr<Inputs> ReadInputs(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& traces,
                                  const std::string& group) {
  if (arguments.empty() && traces.empty()) {
    return absl::InvalidArgumentError(
        "nothing to report; give printed logs, --metrics files, or folders or globs of them");
  }
  std::vector<Argument> all;
  for (const std::string& text : arguments) all.push_back(ParseArgument(text));
  for (const std::string& text : traces) all.push_back({text, "", "", text});
  Inputs inputs;
  RunList runs;
  std::set<std::string> seen;
  for (const Argument& argument : all) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          FilesOf(argument.path, &inputs.notes));
    for (const std::string& path : files) {
      if (!seen.insert(fs::weakly_canonical(path).string()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": given twice, but it is one file; name each once"));
      }
      ABSL_RETURN_IF_ERROR(AddFile(argument, path, &runs, &inputs.traces));
    }
  }
  inputs.runs = runs.Take();
  for (TrainingRun& run : inputs.runs) {
    if (run.group.empty()) run.group = group;
    Complete(&run);
    NoteGaps(&run);
  }
  ABSL_RETURN_IF_ERROR(
      GiveNames([](const TrainingRun& run) { return run.paths[0]; }, &inputs.runs));
  ABSL_RETURN_IF_ERROR(GiveNames([](const TraceFile& t) { return t.path; }, &inputs.traces));
  return inputs;
}

}  // namespace tools
