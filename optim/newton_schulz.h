// Newton-Schulz iteration of degree 5 (Jordan, "Muon", 2024).
#ifndef OPTIM_NEWTON_SCHULZ_H_
#define OPTIM_NEWTON_SCHULZ_H_

#include "optim/quintic.h"

namespace optim {

// X <- u / (|u|_F + 1e-7), then five times the polynomial with (a, b, c) = (3.4445, -4.7750,
// 2.0315): [0.01, 1] goes to [0.68183, 1.13436] before rounding. The coefficients favour speed at
// zero (slope 484.88) over an exact 1.
class NewtonSchulz : public QuinticOrthogonalizer {
 public:
  NewtonSchulz();
};

}  // namespace optim

#endif  // OPTIM_NEWTON_SCHULZ_H_
