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

bool IsTall(const Tensor& x) { return x.dim(1) > x.dim(2); }

// X X^T, or, of a tall matrix, X^T X.
void Gram(Tensor x, Tensor gram, Queue& queue) {
  if (IsTall(x)) {
    kernels::MatMul(x, x, gram, {.trans_a = true}, queue);
  } else {
    kernels::SymmetricProduct(x, 1.0f, 0.0f, Tensor(), gram, queue);
  }
}

// next = a X + B X, or, of a tall matrix, a X + X B; poly = B.
void Step(const Quintic& f, Tensor x, Tensor gram, Tensor poly, Tensor next, Queue& queue) {
  if (IsTall(x)) {
    kernels::MatMul(gram, gram, poly, {.alpha = f.c, .beta = f.b}, gram, queue);
    kernels::MatMul(x, poly, next, {.beta = f.a}, x, queue);
  } else {
    kernels::SymmetricProduct(gram, f.c, f.b, gram, poly, queue);
    kernels::MatMul(poly, x, next, {.beta = f.a}, x, queue);
  }
}

}  // namespace

QuinticOrthogonalizer::QuinticOrthogonalizer(QuinticTable table) : table_(std::move(table)) {}

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
  if (table_.iterations.size() % 2 == 0) std::swap(x, next);  // the last result lands in o
  if (table_.norm_from_gram) {
    Gram(u, gram, queue);
    kernels::NormalizeByGram({.u = u,
                              .gram = gram,
                              .x = x,
                              .scale = table_.norm_scale,
                              .lone_scale = table_.lone_norm_scale,
                              .eps = table_.norm_eps},
                             queue);
  } else {
    kernels::NormalizeFrobenius(u, table_.norm_scale, table_.norm_eps, x, queue);
  }
  bool has_gram = table_.norm_from_gram;
  for (const Quintic& f : table_.iterations) {
    if (!has_gram) Gram(x, gram, queue);
    has_gram = false;
    Step(f, x, gram, poly, next, queue);
    std::swap(x, next);
  }
}

}  // namespace optim
