#include "optim/polar_express.h"

namespace optim {

PolarExpress::PolarExpress()
    : QuinticOrthogonalizer(
          {.name = "polar_express",
           .norm_scale = 1.02f,
           .norm_eps = 1e-6f,
           .iterations = {{8.156554524902461f, -22.48329292557795f, 15.878769915207462f},
                          {4.042929935166739f, -2.808917465908714f, 0.5000178451051316f},
                          {3.8916678022926607f, -2.772484153217685f, 0.5060648178503393f},
                          {3.285753657755655f, -2.3681294933425376f, 0.46449024233003106f},
                          {2.3465413258596377f, -1.7097828382687081f, 0.42323551169305323f}}}) {}

}  // namespace optim
