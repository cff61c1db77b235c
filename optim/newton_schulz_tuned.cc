#include "optim/newton_schulz_tuned.h"

namespace optim {

NewtonSchulzTuned::NewtonSchulzTuned()
    : QuinticOrthogonalizer({.name = "newton_schulz_tuned",
                             .norm_scale = 1.0f,
                             .norm_eps = 1e-7f,
                             .iterations = {{4.0848f, -6.8946f, 2.9270f},
                                            {3.9505f, -6.3029f, 2.6377f},
                                            {3.7418f, -5.5913f, 2.3037f},
                                            {2.8769f, -3.1427f, 1.2046f},
                                            {2.8366f, -3.0525f, 1.2012f}}}) {}

}  // namespace optim
