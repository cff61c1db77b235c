// Misspelt flags are answered with the nearest name there is.
#ifndef TOOLS_FLAG_NAMES_H_
#define TOOLS_FLAG_NAMES_H_

#include "absl/status/status.h"

namespace tools {

// To be called before absl::ParseCommandLine, which would only say that a flag is unknown.
// InvalidArgument for the first argument before "--" that looks like a flag and is none, with the
// nearest flag if one is near.
absl::Status CheckFlagNames(int argc, char* const* argv);

}  // namespace tools

#endif  // TOOLS_FLAG_NAMES_H_
