// The whitening cascade of modded-nanogpt's ANVIL (mainline of 2026, pull request 360).
#ifndef OPTIM_ANVIL_CASCADE_H_
#define OPTIM_ANVIL_CASCADE_H_

#include "optim/quintic.h"

namespace optim {

// X <- u / (1.05 |u|_F + 1e-6), then six polynomials: [0.003, 1 / 1.05] goes to [0.995067,
// 1.000401] before rounding, and the slope at zero is 643.13. The norm is the root of the trace of
// the first Gram matrix, which is then rescaled instead of computed again.
//
// Above 0.952396 the polynomials leave the band at once (23 at 0.9525, 1e20 at 0.9535), and a
// matrix of rank one has its singular value at 0.952381: roundings to bf16 throw a third or more of
// such matrices out of the band, some to NaN. So where one singular value is nearly alone
// (kernels::NormalizeByGram, from 0.985 of the norm on) the margin is 1.1, which the band bears as
// well; ANVIL itself has 1.05 there too. In bf16 all singular values above 0.003 of the norm end in
// [0.98, 1.02].
//
// A matrix with a value that is not finite, or whose squared norm f32 cannot hold (from 1.8e19 on),
// becomes NaN throughout.
class AnvilCascade : public QuinticOrthogonalizer {
 public:
  AnvilCascade();
};

}  // namespace optim

#endif  // OPTIM_ANVIL_CASCADE_H_
