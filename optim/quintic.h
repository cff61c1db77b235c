// Orthogonalisation by odd polynomials of degree 5, whatever their coefficients.
#ifndef OPTIM_QUINTIC_H_
#define OPTIM_QUINTIC_H_

#include <string>
#include <vector>

#include "optim/orthogonalizer.h"

namespace optim {

// x -> a x + b x^3 + c x^5
struct Quintic {
  float a, b, c;
};

struct QuinticTable {
  std::string name;
  float norm_scale, norm_eps;  // X <- u / (norm_scale |u|_F + norm_eps) before the first
  std::vector<Quintic> iterations;
  // The norm is that of kernels::NormalizeByGram, with this scale where one singular value is
  // nearly alone. The first A is the u u^T that gave the norm, divided by the norm's square.
  bool norm_from_gram = false;
  float lone_norm_scale = 0;
};

// Each iteration, rounding A, B and X to bf16:
//   A = X X^T;  B = b A + c A A;  X <- a X + B X
// so every singular value goes through the polynomial. With more rows than columns the same runs
// on X^T, without moving data.
class QuinticOrthogonalizer : public Orthogonalizer {
 public:
  explicit QuinticOrthogonalizer(QuinticTable table);

  absl::string_view name() const override { return table_.name; }
  int64_t WorkspaceElements(int64_t batch, int64_t rows, int64_t cols) const override;
  void Orthogonalize(kernels::Tensor u, kernels::Tensor workspace, kernels::Tensor o,
                     kernels::Queue& queue) const override;

 private:
  const QuinticTable table_;
};

}  // namespace optim

#endif  // OPTIM_QUINTIC_H_
