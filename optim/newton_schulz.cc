#include "optim/newton_schulz.h"

#include <vector>

namespace optim {

NewtonSchulz::NewtonSchulz()
    : QuinticOrthogonalizer({.name = "newton_schulz",
                             .norm_scale = 1.0f,
                             .norm_eps = 1e-7f,
                             .iterations = std::vector<Quintic>(5, {3.4445f, -4.7750f, 2.0315f})}) {
}

}  // namespace optim
