// The one place that decides whether a flag may write to a path.
#ifndef TOOLS_OUTPUT_FILES_H_
#define TOOLS_OUTPUT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tools {

struct OutputFile {
  std::string flag;  // without dashes: "metrics"
  std::string path;  // empty: the flag was not given
};

// To be called before a run: OK if nothing that the user has would be lost by writing these files.
//
// InvalidArgument, with the flag, the path and what to do, for a file that is there and holds
// anything, unless `overwrite` is set: the value of the tool's --overwrite, which the message
// names. Whatever `overwrite` says, for a folder, for a path whose folder is missing or cannot be
// written to, and for two flags that name one file. Devices and pipes have nothing to lose, and
// what cannot write to them says so itself.
absl::Status CheckOutputFiles(const std::vector<OutputFile>& files, bool overwrite);

// Of a metrics file that a resumed run goes on in: OK if it is missing, empty, or its first line is
// that of a metrics file. InvalidArgument otherwise.
absl::Status CheckMetricsToAppendTo(const OutputFile& file);

}  // namespace tools

#endif  // TOOLS_OUTPUT_FILES_H_
