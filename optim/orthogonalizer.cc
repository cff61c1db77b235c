#include "optim/orthogonalizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "optim/newton_schulz.h"

namespace optim {

absl::StatusOr<std::unique_ptr<Orthogonalizer>> MakeOrthogonalizer(const std::string& name) {
  if (name == "newton_schulz") return std::unique_ptr<Orthogonalizer>(new NewtonSchulz);
  return absl::InvalidArgumentError(
      absl::StrCat("no orthogonalizer \"", name, "\" in this build; it has: newton_schulz"));
}

}  // namespace optim
