#include "optim/orthogonalizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "optim/anvil_cascade.h"
#include "optim/newton_schulz.h"
#include "optim/newton_schulz_tuned.h"
#include "optim/polar_express.h"

namespace optim {

absl::StatusOr<std::unique_ptr<Orthogonalizer>> MakeOrthogonalizer(const std::string& name) {
  if (name == "newton_schulz") return std::unique_ptr<Orthogonalizer>(new NewtonSchulz);
  if (name == "newton_schulz_tuned") {
    return std::unique_ptr<Orthogonalizer>(new NewtonSchulzTuned);
  }
  if (name == "polar_express") return std::unique_ptr<Orthogonalizer>(new PolarExpress);
  if (name == "anvil_cascade") return std::unique_ptr<Orthogonalizer>(new AnvilCascade);
  return absl::InvalidArgumentError(
      absl::StrCat("no orthogonalizer \"", name,
                   "\" in this build; it has: newton_schulz, newton_schulz_tuned, polar_express, "
                   "anvil_cascade"));
}

}  // namespace optim
