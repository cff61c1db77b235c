// What this binary is composed of: the components that the build flags chose.
#ifndef TOOLS_COMPOSITION_H_
#define TOOLS_COMPOSITION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tools {

// "nanospeed track1: kernels cpu, comm local, matrix_optimizer=recipe ..., C++20 gcc 12.2.0".
// For --version and the head of every log.
std::string CompositionText(absl::string_view program);

}  // namespace tools

#endif  // TOOLS_COMPOSITION_H_
