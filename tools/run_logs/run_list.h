// Which files are of one run. Statistics count runs, and a run may leave several files: what it
// printed, a console's copy of that, a metrics file, and the same again when it was resumed.
//
//   RunList list;
//   for (...) ABSL_RETURN_IF_ERROR(list.Add({path, "", "new"}, *kind, text));
//   ABSL_ASSIGN_OR_RETURN(const std::vector<TrainingRun> runs, list.Take());
#ifndef TOOLS_RUN_LOGS_RUN_LIST_H_
#define TOOLS_RUN_LOGS_RUN_LIST_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/run_logs/run.h"
#include "tools/run_logs/run_file.h"

namespace tools {

// Files that were named, each of which is read once.
class FileSet {
 public:
  // Returns true for a file that is new, and false for another name of one that is there: a
  // symbolic or hard link, with a note. InvalidArgument if the same name is given twice.
  absl::StatusOr<bool> Add(const std::string& path, std::vector<std::string>* notes);

 private:
  std::map<std::string, std::string> names_;  // the path as it was given, by its normal form
  std::map<std::string, std::string> files_;  // likewise, by device and inode
};

// Collects what files say, and makes runs of it:
//   - a file whose steps begin anew holds several runs (see run_file.h);
//   - a printed log and a metrics file are one run if they have one name (NAME= of the user, else
//     the path without its ending), or if all their common validations agree in loss and train
//     time;
//   - a printed log is of the same run as another if all their common validations are equal, loss
//     and train time, and the steps of one are among the other's: a console shows less than the log
//     file has. They count once. Two that have the same rows are copies, and refused;
//   - a log, or metrics file, that begins after step 0 goes on from the one unfinished log that
//     reaches that step, as a resumed run's second log does. If several do, it is left alone, with
//     a note.
// What was put together for what the files say, and not for their names, is noted in the run.
class RunList {
 public:
  struct Place {
    std::string path;
    std::string name = {};   // of the run; empty: it is known by its path
    std::string group = {};  // empty: none
  };

  // Errors of ParseRuns. `kind`: kPrintedLog or kMetrics.
  absl::Status Add(const Place& place, FileKind kind, absl::string_view text);

  // The runs in the order of their first files, names only where the user gave them. The list is
  // empty then.
  //
  // InvalidArgument, with the files' names: copies; one run in two groups; one NAME for two runs; a
  // log and a metrics file of one name that contradict each other.
  absl::StatusOr<std::vector<TrainingRun>> Take();

 private:
  struct File {
    size_t order = 0;  // of all, as they were added
    std::string key;   // equal for the two halves of a run
    bool named = false;
    TrainingRun run;
    std::vector<TrainingRun> parts;  // the files of one kind that `run` was made of
  };

  static absl::StatusOr<File> Merged(File file, File other);
  static absl::StatusOr<std::vector<File>> MergeSame(std::vector<File> files);
  static std::vector<File> JoinResumed(std::vector<File> files);
  static absl::Status CheckNames(const std::vector<File>& files);
  // The place in `logs` of the log of the same run that is not `taken`, or their number.
  static absl::StatusOr<size_t> LogOf(const File& half, const std::vector<File>& logs,
                                      const std::vector<bool>& taken);
  static absl::Status Pair(File half, std::vector<File>* logs, std::vector<bool>* taken);

  size_t added_ = 0;
  std::vector<File> logs_, metrics_;
};

// A sentence that names two of the runs which have the same loss at each of at least four
// validations after step 0, as the same program with the same seed has, or a copy with other times:
// they are one sample, not two. Empty if there are none.
std::string RepeatedRun(const std::vector<const TrainingRun*>& runs);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_RUN_LIST_H_
