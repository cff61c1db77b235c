#include "optim/quintic.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/matmul.h"
#include "kernels/ops/optimizer.h"
#include "third_party/absl_compat/check.h"

namespace optim {
namespace {

using kernels::Queue;
using kernels::Tensor;

// next = a X + B X, gram = X X^T, poly = B.
void Wide(const Quintic& f, Tensor x, Tensor gram, Tensor poly, Tensor next, Queue& queue) {
  kernels::SymmetricProduct(x, 1.0f, 0.0f, Tensor(), gram, queue);
  kernels::SymmetricProduct(gram, f.c, f.b, gram, poly, queue);
  kernels::MatMul(poly, x, next, {.beta = f.a}, x, queue);
}

// The same on the transpose: next = a X + X B, gram = X^T X.
void Tall(const Quintic& f, Tensor x, Tensor gram, Tensor poly, Tensor next, Queue& queue) {
  kernels::MatMul(x, x, gram, {.trans_a = true}, queue);
  kernels::MatMul(gram, gram, poly, {.alpha = f.c, .beta = f.b}, gram, queue);
  kernels::MatMul(x, poly, next, {.beta = f.a}, x, queue);
}

}  // namespace

QuinticOrthogonalizer::QuinticOrthogonalizer(QuinticTable table) : table_(std::move(table)) {
  CHECK_EQ(table_.iterations.size() % 2, size_t{1}) << "the last result must land in o";
}

int64_t QuinticOrthogonalizer::WorkspaceElements(int64_t batch, int64_t rows, int64_t cols) const {
  const int64_t side = std::min(rows, cols);
  return batch * (rows * cols + 2 * side * side);
}

void QuinticOrthogonalizer::Orthogonalize(Tensor u, Tensor workspace, Tensor o,
                                          Queue& queue) const {
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
  kernels::NormalizeFrobenius(u, table_.norm_scale, table_.norm_eps, x, queue);
  for (const Quintic& f : table_.iterations) {
    (rows <= cols ? Wide : Tall)(f, x, gram, poly, next, queue);
    std::swap(x, next);
  }
}

}  // namespace optim
