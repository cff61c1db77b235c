#include "tools/build_info.h"

#include "absl/strings/str_cat.h"

extern const char kCommit[];  // commit.cc, which the build writes

namespace tools {

std::string BuildInfo(absl::string_view program) {
#ifdef __clang__
  constexpr char kCompiler[] = __VERSION__;  // begins with its name
#else
  constexpr char kCompiler[] = "gcc " __VERSION__;
#endif
  return absl::StrCat("nanospeed ", program, ", commit ", kCommit, ", ", kCompiler);
}

}  // namespace tools
