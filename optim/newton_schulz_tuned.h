// Newton-Schulz iteration of degree 5 with other coefficients in each iteration (Cesista, You and
// Jordan, "Squeezing 1-2% Efficiency Gains Out of Muon by Optimizing the Newton-Schulz
// Coefficients", 2025), as modded-nanogpt's track 2 has them in its record of 2025-04-16.
#ifndef OPTIM_NEWTON_SCHULZ_TUNED_H_
#define OPTIM_NEWTON_SCHULZ_TUNED_H_

#include "optim/quintic.h"

namespace optim {

// X <- u / (|u|_F + 1e-7), then five polynomials: [0.01, 1] goes to [0.97775, 1.03178] before
// rounding. The slope at zero is NewtonSchulz's (492.75), the band twelve times narrower; below
// 0.01 up to 1.14502 is reached (at 0.00407).
class NewtonSchulzTuned : public QuinticOrthogonalizer {
 public:
  NewtonSchulzTuned();
};

}  // namespace optim

#endif  // OPTIM_NEWTON_SCHULZ_TUNED_H_
