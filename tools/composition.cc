#include "tools/composition.h"

#include "absl/strings/str_cat.h"
#include "optim/build_choices.h"
#include "tools/build_info.h"
#include "tools/trainer/ranks.h"

// The values of the flags, as words.
#define TOOLS_STRING_INNER(x) #x
#define TOOLS_STRING(x) TOOLS_STRING_INNER(x)

namespace tools {
namespace {

const char kKernels[] = TOOLS_STRING(TOOLS_KERNELS);

}  // namespace

std::string CompositionText(absl::string_view program) {
  return absl::StrCat(BuildInfo(program), ": kernels=", kKernels, " comm=", RanksBackend(), " ",
                      optim::BuildChoices());
}

}  // namespace tools
