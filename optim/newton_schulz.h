// Newton-Schulz iteration of degree 5 (Jordan, "Muon", 2024).
#ifndef OPTIM_NEWTON_SCHULZ_H_
#define OPTIM_NEWTON_SCHULZ_H_

#include "optim/orthogonalizer.h"

namespace optim {

// X <- u / (|u|_F + 1e-7), then five times, rounding A, B and X to bf16:
//   A = X X^T;  B = b A + c A A;  X <- a X + B X,  (a, b, c) = (3.4445, -4.7750, 2.0315)
// so a singular value s becomes a s + b s^3 + c s^5, five times: [0.01, 1] goes to
// [0.68183, 1.13436] before rounding. The coefficients favour speed at zero (slope 484.88) over
// an exact 1. With more rows than columns the same runs on X^T, without moving data.
class NewtonSchulz : public Orthogonalizer {
 public:
  absl::string_view name() const override { return "newton_schulz"; }
  int64_t WorkspaceElements(int64_t batch, int64_t rows, int64_t cols) const override;
  void Orthogonalize(kernels::Tensor u, kernels::Tensor workspace, kernels::Tensor o,
                     kernels::Queue& queue) const override;
};

}  // namespace optim

#endif  // OPTIM_NEWTON_SCHULZ_H_
