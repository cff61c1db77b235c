// The runs and traces that the command line names.
#ifndef TOOLS_REPORT_INPUTS_H_
#define TOOLS_REPORT_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/report/trace_file.h"
#include "tools/run_logs/run.h"

namespace tools {

struct Inputs {
  std::vector<TrainingRun> runs;
  std::vector<TraceFile> traces;
  std::vector<std::string> notes;  // about what is of no single run
};

// Each argument is [GROUP:][NAME=]PATH, where PATH is a file, a folder or a glob; what names files
// as it stands, or after GROUP:, is a path whatever is in it. Of a folder the files that end in
// .log, .txt, .jsonl or .json are read, and a note tells of the others. Which files are of one run
// is for RunList to say (tools/run_logs/run_list.h). Runs without a group belong to `group`, which
// may be empty. `traces` are lists of names and globs.
//
// NotFound for a path without a match; InvalidArgument for no arguments, a file that is given
// twice, a file of no known kind, a NAME for several runs, copies, and halves that contradict each
// other.
absl::StatusOr<Inputs> ReadInputs(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& traces, const std::string& group);

}  // namespace tools

#endif  // TOOLS_REPORT_INPUTS_H_
