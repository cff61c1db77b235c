#include "kernels/ops/matmul.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

bool IsFloat(const Tensor& t) { return t.dtype() == DType::kF32 || t.dtype() == DType::kBF16; }

// Matrices of a tensor of two or three dims.
int64_t Batch(const Tensor& t) { return t.rank() == 3 ? t.dim(0) : 1; }

void CheckBf16(const char* op, const char* what, const Tensor& t, int rank) {
  CHECK(t.dtype() == DType::kBF16 && t.rank() == rank) << op << ": " << what << " " << t;
}

// Whether w takes rows of x to rows of a.
bool FitsMlp(const Tensor& x, const Tensor& w, HiddenDim hidden, const Tensor& a) {
  const int at = hidden == HiddenDim::kRows ? 0 : 1;
  return w.dim(at) == a.cols() && w.dim(1 - at) == x.cols() && a.dim(0) == x.dim(0) &&
         a.dim(1) == x.dim(1);
}

}  // namespace

void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
            Queue& queue) {
  CHECK(IsFloat(a) && a.dtype() == b.dtype() && IsFloat(c))
      << "MatMul: a " << a << ", b " << b << ", c " << c;
  for (const Tensor& t : {a, b, c}) CHECK(t.rank() == 2 || t.rank() == 3) << "MatMul: " << t;
  const int64_t m = a.dim(options.trans_a ? -1 : -2), k = a.dim(options.trans_a ? -2 : -1);
  const int64_t n = b.dim(options.trans_b ? -2 : -1);
  CHECK(b.dim(options.trans_b ? -1 : -2) == k && c.dim(-2) == m && c.dim(-1) == n &&
        Batch(a) == Batch(c) && (Batch(b) == 1 || Batch(b) == Batch(c)))
      << "MatMul: a " << a << (options.trans_a ? " transposed" : "") << ", b " << b
      << (options.trans_b ? " transposed" : "") << ", c " << c;
  if (options.beta != 0) {
    CHECK(SameShape(addend, c) && addend.dtype() == c.dtype())
        << "MatMul: addend " << addend << ", c " << c;
  }
  queue.ops().matmul->MatMul(a, b, c, options, addend, queue);
}

void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue) {
  CheckBf16("WeightGrad", "dy", dy, 3);
  CheckBf16("WeightGrad", "x", x, 3);
  CHECK(dy.dim(0) == x.dim(0) && dy.dim(1) == x.dim(1) && dw.dtype() == DType::kF32 &&
        dw.rank() == 3 && dw.dim(1) == dy.cols() && dw.dim(2) == x.cols() &&
        (dw.dim(0) == 1 || dw.dim(0) == x.dim(0)))
      << "WeightGrad: dy " << dy << ", x " << x << ", dw " << dw;
  queue.ops().matmul->WeightGrad(dy, x, dw, queue);
}

void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b, Queue& queue) {
  CheckBf16("LinearRelu2", "u", u, 3);
  CheckBf16("LinearRelu2", "w", w, 2);
  CheckBf16("LinearRelu2", "a", a, 3);
  CheckBf16("LinearRelu2", "b", b, 3);
  CHECK(SameShape(a, b) && FitsMlp(u, w, hidden, a))
      << "LinearRelu2: u " << u << ", w " << w << ", a " << a << ", b " << b;
  queue.ops().matmul->LinearRelu2(u, w, hidden, a, b, queue);
}

void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da, Queue& queue) {
  CheckBf16("LinearRelu2Grad", "dy", dy, 3);
  CheckBf16("LinearRelu2Grad", "w", w, 2);
  CheckBf16("LinearRelu2Grad", "a", a, 3);
  CheckBf16("LinearRelu2Grad", "da", da, 3);
  CHECK(SameShape(a, da) && FitsMlp(dy, w, hidden, a))
      << "LinearRelu2Grad: dy " << dy << ", w " << w << ", a " << a << ", da " << da;
  queue.ops().matmul->LinearRelu2Grad(dy, w, hidden, a, da, queue);
}

void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c, Queue& queue) {
  CheckBf16("SymmetricProduct", "x", x, 3);
  CheckBf16("SymmetricProduct", "c", c, 3);
  CHECK(c.dim(0) == x.dim(0) && c.dim(1) == x.dim(1) && c.dim(2) == x.dim(1))
      << "SymmetricProduct: x " << x << ", c " << c;
  CHECK(c.data() != x.data()) << "SymmetricProduct: c may not be x";
  if (beta != 0) {
    CHECK(SameShape(addend, c) && addend.dtype() == c.dtype() && addend.data() != c.data())
        << "SymmetricProduct: addend " << addend << ", c " << c;
  }
  queue.ops().matmul->SymmetricProduct(x, alpha, beta, addend, c, queue);
}

}  // namespace kernels
