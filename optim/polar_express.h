// Polar Express (Amsel, Persson, Musco, Gower: "The Polar Express", 2025).
#ifndef OPTIM_POLAR_EXPRESS_H_
#define OPTIM_POLAR_EXPRESS_H_

#include "optim/quintic.h"

namespace optim {

// X <- u / (1.02 |u|_F + 1e-6), then five different polynomials, each the best for the interval
// that the ones before leave (safety factor 0.02, cushion 2): [0.001, 1/1.02] goes to
// [0.858873, 1.141127] before rounding, and the slope at zero is 989.47.
class PolarExpress : public QuinticOrthogonalizer {
 public:
  PolarExpress();
};

}  // namespace optim

#endif  // OPTIM_POLAR_EXPRESS_H_
