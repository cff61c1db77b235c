#include "kernels/ops/matmul.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// Matrices of a tensor of two or three dims.
int64_t Batch(const Tensor& t) { return t.rank() == 3 ? t.dim(0) : 1; }

// Of LinearRelu2 and its gradient: w takes rows of x to rows of a, which b or da is like.
void CheckMlp(const char* op, const char* x_name, const Tensor& x, const Tensor& w,
              HiddenDim hidden, const Tensor& a, const char* like_a, const Tensor& b) {
  CheckRank(op, x_name, x, DType::kBF16, 3);
  CheckRank(op, "w", w, DType::kBF16, 2);
  CheckRank(op, "a", a, DType::kBF16, 3);
  CheckLike(op, like_a, b, DType::kBF16, "a", a);
  const int at = hidden == HiddenDim::kRows ? 0 : 1;
  CHECK(w.dim(at) == a.cols() && w.dim(1 - at) == x.cols() && a.dim(0) == x.dim(0) &&
        a.dim(1) == x.dim(1))
      << op << ": " << x_name << " " << x << ", w " << w << ", a " << a;
}

}  // namespace

void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
            Queue& queue) {
  constexpr char kOp[] = "MatMul";
  CHECK(IsFloat(a) && a.dtype() == b.dtype() && IsFloat(c))
      << kOp << ": a " << a << ", b " << b << ", c " << c;
  for (const Tensor& t : {a, b, c}) CHECK(t.rank() == 2 || t.rank() == 3) << kOp << ": " << t;
  const int64_t m = a.dim(options.trans_a ? -1 : -2), k = a.dim(options.trans_a ? -2 : -1);
  const int64_t n = b.dim(options.trans_b ? -2 : -1);
  CHECK(b.dim(options.trans_b ? -1 : -2) == k && c.dim(-2) == m && c.dim(-1) == n &&
        Batch(a) == Batch(c) && (Batch(b) == 1 || Batch(b) == Batch(c)))
      << kOp << ": a " << a << (options.trans_a ? " transposed" : "") << ", b " << b
      << (options.trans_b ? " transposed" : "") << ", c " << c;
  if (options.beta != 0) CheckLike(kOp, "addend", addend, c.dtype(), "c", c);
  const TraceScope scope(kOp, queue, [&] { return MatMulCost(a, b, c, options); });
  queue.ops().matmul->MatMul(a, b, c, options, addend, queue);
}

void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue) {
  constexpr char kOp[] = "WeightGrad";
  CheckRank(kOp, "dy", dy, DType::kBF16, 3);
  CheckRank(kOp, "x", x, DType::kBF16, 3);
  CHECK(dy.dim(0) == x.dim(0) && dy.dim(1) == x.dim(1)) << kOp << ": dy " << dy << ", x " << x;
  CheckLeaves(kOp, "dw", dw, x.dim(0), {dy.cols(), x.cols()});
  const TraceScope scope(kOp, queue, [&] { return WeightGradCost(dy, x, dw); });
  queue.ops().matmul->WeightGrad(dy, x, dw, queue);
}

void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b, Queue& queue) {
  constexpr char kOp[] = "LinearRelu2";
  CheckMlp(kOp, "u", u, w, hidden, a, "b", b);
  const TraceScope scope(kOp, queue, [&] { return LinearRelu2Cost(u, w, a); });
  queue.ops().matmul->LinearRelu2(u, w, hidden, a, b, queue);
}

void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da, Queue& queue) {
  constexpr char kOp[] = "LinearRelu2Grad";
  CheckMlp(kOp, "dy", dy, w, hidden, a, "da", da);
  const TraceScope scope(kOp, queue, [&] { return LinearRelu2GradCost(dy, w, a); });
  queue.ops().matmul->LinearRelu2Grad(dy, w, hidden, a, da, queue);
}

void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c, Queue& queue) {
  constexpr char kOp[] = "SymmetricProduct";
  CheckRank(kOp, "x", x, DType::kBF16, 3);
  CheckTensor(kOp, "c", c, DType::kBF16, {x.dim(0), x.dim(1), x.dim(1)});
  CHECK(c.data() != x.data()) << kOp << ": c may not be x";
  if (beta != 0) {
    CheckLike(kOp, "addend", addend, c.dtype(), "c", c);
    CHECK(addend.data() != c.data()) << kOp << ": c may not be the addend";
  }
  const TraceScope scope(kOp, queue, [&] { return SymmetricProductCost(x, beta, c); });
  queue.ops().matmul->SymmetricProduct(x, alpha, beta, addend, c, queue);
}

OpCost MatMulCost(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options) {
  const int64_t k = options.trans_a ? a.dim(-2) : a.dim(-1);
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(a) + (options.trans_a ? "^T" : "") + " x " + Text(b) +
               (options.trans_b ? "^T" : "") + (options.beta != 0 ? " + addend" : "");
  cost.flops = ProductFlops(c.rows(), c.cols(), k);
  cost.bytes = Bytes(a) + Bytes(b) + Bytes(c) * (options.beta != 0 ? 2 : 1);
  return cost;
}

OpCost WeightGradCost(const Tensor& dy, const Tensor& x, const Tensor& dw) {
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(dy) + "^T x " + Text(x);
  cost.flops = ProductFlops(dy.cols(), x.cols(), x.rows());
  cost.bytes = Bytes(dy) + Bytes(x) + 2 * Bytes(dw);
  return cost;
}

OpCost LinearRelu2Cost(const Tensor& u, const Tensor& w, const Tensor& a) {
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(u, w);
  cost.flops = ProductFlops(u.rows(), a.cols(), u.cols());
  cost.bytes = Bytes(u) + Bytes(w) + 2 * Bytes(a);
  return cost;
}

OpCost LinearRelu2GradCost(const Tensor& dy, const Tensor& w, const Tensor& a) {
  return LinearRelu2Cost(dy, w, a);  // a is read and da written, where the forward writes a and b
}

OpCost SymmetricProductCost(const Tensor& x, float beta, const Tensor& c) {
  const double batch = x.dim(0), r = x.dim(1), k = x.dim(2);
  OpCost cost;
  cost.phase = OpPhase::kOptimizer;
  cost.shape = Text(x) + " x ^T" + (beta != 0 ? " + addend" : "");
  cost.flops = batch * r * (r + 1) * k;
  cost.bytes = Bytes(x) + Bytes(c) * (beta != 0 ? 2 : 1);
  return cost;
}

}  // namespace kernels
