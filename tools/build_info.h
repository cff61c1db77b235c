// Which source and compiler this program was built from.
#ifndef TOOLS_BUILD_INFO_H_
#define TOOLS_BUILD_INFO_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tools {

// "nanospeed sample, commit 1a2b3c4d5e6f, gcc 12.2.0"; "with changes" behind the commit if the
// checkout differed from it.
std::string BuildInfo(absl::string_view program);

}  // namespace tools

#endif  // TOOLS_BUILD_INFO_H_
