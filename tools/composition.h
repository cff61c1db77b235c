// What this binary is composed of: the components that the build flags chose.
#ifndef TOOLS_COMPOSITION_H_
#define TOOLS_COMPOSITION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tools {

// "nanospeed track1, commit 1a2b3c4d5e6f, gcc 12.2.0: kernels=cpu comm=local
// matrix_optimizer=recipe ...".
// For --version and the head of every log.
std::string CompositionText(absl::string_view program);

}  // namespace tools

#endif  // TOOLS_COMPOSITION_H_
