#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/matmul.h"
#include "kernels/ops/optimizer.h"
#include "third_party/absl_compat/check.h"

namespace optim {
namespace {

using kernels::Queue;
using kernels::Tensor;

constexpr int kIterations = 5;
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr float kNormEps = 1e-7f;

// next = a X + B X, gram = X X^T, poly = B.
void Wide(Tensor x, Tensor gram, Tensor poly, Tensor next, Queue& queue) {
  kernels::SymmetricProduct(x, 1.0f, 0.0f, Tensor(), gram, queue);
  kernels::SymmetricProduct(gram, kC, kB, gram, poly, queue);
  kernels::MatMul(poly, x, next, {.beta = kA}, x, queue);
}

// The same on the transpose: next = a X + X B, gram = X^T X.
void Tall(Tensor x, Tensor gram, Tensor poly, Tensor next, Queue& queue) {
  kernels::MatMul(x, x, gram, {.trans_a = true}, queue);
  kernels::MatMul(gram, gram, poly, {.alpha = kC, .beta = kB}, gram, queue);
  kernels::MatMul(x, poly, next, {.beta = kA}, x, queue);
}

}  // namespace

int64_t NewtonSchulz::WorkspaceElements(int64_t batch, int64_t rows, int64_t cols) const {
  const int64_t side = std::min(rows, cols);
  return batch * (rows * cols + 2 * side * side);
}

void NewtonSchulz::Orthogonalize(Tensor u, Tensor workspace, Tensor o, Queue& queue) const {
  CHECK_EQ(u.rank(), 3);
  CHECK(kernels::SameShape(u, o)) << "u " << u << ", o " << o;
  const int64_t batch = u.dim(0), rows = u.dim(1), cols = u.dim(2), side = std::min(rows, cols);
  CHECK_GE(workspace.size(), WorkspaceElements(batch, rows, cols)) << "u " << u;
  const Tensor flat = workspace.Reshape({-1});
  const int64_t square = batch * side * side;
  const Tensor gram = flat.Slice(0, square).Reshape({batch, side, side});
  const Tensor poly = flat.Slice(square, square).Reshape({batch, side, side});
  Tensor x = flat.Slice(2 * square, u.size()).Reshape({batch, rows, cols});
  Tensor next = o;
  static_assert(kIterations % 2 == 1, "the last result must land in o");
  kernels::NormalizeFrobenius(u, kNormEps, x, queue);
  for (int i = 0; i < kIterations; ++i) {
    (rows <= cols ? Wide : Tall)(x, gram, poly, next, queue);
    std::swap(x, next);
  }
}

}  // namespace optim
