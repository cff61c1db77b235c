#include "tools/report/inputs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/run_logs/matching_files.h"
#include "tools/run_logs/run_file.h"
#include "tools/run_logs/run_list.h"

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

// The readings of [GROUP:][NAME=]PATH, the one with the fewest marks first.
std::vector<Argument> ReadingsOf(const std::string& text) {
  std::vector<Argument> readings = {{text, "", "", text}};
  Argument grouped = readings[0];
  if (text.find(':') < text.find('=') && SplitAt(':', &grouped.group, &grouped.path)) {
    readings.push_back(grouped);
  }
  Argument named = readings.back();
  if (SplitAt('=', &named.name, &named.path)) readings.push_back(named);
  return readings;
}

// A path that exists or matches is meant, whatever is in it; else all marks count.
Argument ParseArgument(const std::string& text) {
  const std::vector<Argument> readings = ReadingsOf(text);
  for (const Argument& reading : readings) {
    if (MatchingFiles(reading.path).ok()) return reading;
  }
  return readings.back();
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

// Names for those that have none: name_of(one, parts) with so many last parts of each path as make
// all differ.
template <typename Named, typename NameOf>
absl::Status GiveNames(const NameOf& name_of, std::vector<Named>* all) {
  constexpr size_t kMostParts = 32;
  std::vector<size_t> nameless;
  for (size_t i = 0; i < all->size(); ++i) {
    if ((*all)[i].name.empty()) nameless.push_back(i);
  }
  for (size_t parts = 1; parts <= kMostParts; ++parts) {
    for (const size_t i : nameless) (*all)[i].name = name_of((*all)[i], parts);
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

std::string NameOfRun(const TrainingRun& run, size_t parts) {
  const std::string name = ShortName(run.paths[0], parts);
  return run.trial > 0 ? absl::StrCat(name, "#", run.trial) : name;
}

absl::Status AddFile(const Argument& argument, const std::string& path, const std::string& group,
                     RunList* runs, std::vector<TraceFile>* traces) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ABSL_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path, text));
  if (kind == FileKind::kTrace) {
    ABSL_ASSIGN_OR_RETURN(TraceFile trace, ParseTrace(path, text));
    trace.name = argument.name;
    traces->push_back(std::move(trace));
    return absl::OkStatus();
  }
  return runs->Add({path, argument.name, argument.group.empty() ? group : argument.group}, kind,
                   text);
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
  for (const std::string& list : traces) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> paths, MatchingFilesOfList(list));
    for (const std::string& path : paths) all.push_back({path, "", "", path});
  }
  Inputs inputs;
  RunList runs;
  FileSet seen;
  for (const Argument& argument : all) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          FilesOf(argument.path, &inputs.notes));
    for (const std::string& path : files) {
      ABSL_ASSIGN_OR_RETURN(const bool is_new, seen.Add(path, &inputs.notes));
      if (!is_new) continue;
      ABSL_RETURN_IF_ERROR(AddFile(argument, path, group, &runs, &inputs.traces));
    }
  }
  ABSL_ASSIGN_OR_RETURN(inputs.runs, runs.Take());
  for (TrainingRun& run : inputs.runs) {
    Complete(&run);
    NoteGaps(&run);
  }
  ABSL_RETURN_IF_ERROR(GiveNames(NameOfRun, &inputs.runs));
  ABSL_RETURN_IF_ERROR(
      GiveNames([](const TraceFile& trace, size_t parts) { return ShortName(trace.path, parts); },
                &inputs.traces));
  return inputs;
}

}  // namespace tools
