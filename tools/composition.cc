#include "tools/composition.h"

#include "absl/strings/str_cat.h"
#include "optim/build_choices.h"

namespace tools {

std::string CompositionText(absl::string_view program) {
  return absl::StrCat("nanospeed ", program, ": kernels=cpu comm=local ", optim::BuildChoices(),
                      ", compiled by ", __VERSION__);
}

}  // namespace tools
