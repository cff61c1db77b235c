// Matrix products. Sums in f32; one rounding to the output's dtype. (On CUDA the library may round
// the product to c's dtype before it adds an addend, as the PyTorch original does.)
#ifndef KERNELS_OPS_MATMUL_H_
#define KERNELS_OPS_MATMUL_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

struct MatMulOptions {
  bool trans_a = false;  // a is stored [K, M] instead of [M, K]
  bool trans_b = false;  // b is stored [N, K] instead of [K, N]
  float alpha = 1.0f;
  float beta = 0.0f;  // weight of `addend`
};

// c = alpha * op(a) op(b) + beta * addend, matrix by matrix.
//
//   a       bf16 or f32 [M, K] or [B, M, K] (before trans_a)
//   b       like a's dtype, [K, N] shared by all B, or [B, K, N] (before trans_b)
//   c       bf16 or f32 [M, N] or [B, M, N]
//   addend  like c, read only when beta != 0; may be c itself, otherwise must not overlap c
//
// c overlaps neither a nor b. Each of the B products is computed alone, so its bits do not
// depend on B: the slots of a pass go along B.
void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
            Queue& queue);
inline void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Queue& queue) {
  MatMul(a, b, c, options, Tensor(), queue);
}

// dw += dy^T x: the gradient of a weight stored [out, in] and applied as y = x w^T. For a
// weight stored [in, out] swap the first two arguments.
//
//   dy  bf16 [slots, T, out]
//   x   bf16 [slots, T, in]
//   dw  f32 [leaves, out, in], leaves = 1 (sum over the slots, in slot order) or slots
void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue);

// How the hidden dim of an MLP's weight is stored.
enum class HiddenDim : uint8_t { kColumns, kRows };

// a = u w; b = max(a, 0)^2. The first half of the MLP.
//
//   u  bf16 [slots, T, in]    w  bf16 [in, hidden], or [hidden, in] with kRows
//   a  bf16 [slots, T, hidden]   b  like a; computed from the rounded a
void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b, Queue& queue);

// da = (dy w) * 2 max(a, 0): the gradient of a in y = max(a, 0)^2 w^T.
//
//   dy  bf16 [slots, T, out]   w  bf16 [out, hidden], or [hidden, out] with kRows
//   a, da  bf16 [slots, T, hidden]
void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da, Queue& queue);

// c = alpha * x x^T + beta * addend for each matrix; c is symmetric bit for bit.
//
//   x  bf16 [B, r, k]   c, addend  bf16 [B, r, r]; addend is symmetric, read if beta != 0
//
// Half the work of MatMul, and no overlap of c with x or addend.
void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c, Queue& queue);

OpCost MatMulCost(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options);
OpCost WeightGradCost(const Tensor& dy, const Tensor& x, const Tensor& dw);
OpCost LinearRelu2Cost(const Tensor& u, const Tensor& w, const Tensor& a);
OpCost LinearRelu2GradCost(const Tensor& dy, const Tensor& w, const Tensor& a);
// Half of the products, and the diagonal.
OpCost SymmetricProductCost(const Tensor& x, float beta, const Tensor& c);

class MatMulOps {
 public:
  virtual ~MatMulOps() = default;
  virtual void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
                      Queue& queue) const = 0;
  virtual void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue) const = 0;
  virtual void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b,
                           Queue& queue) const = 0;
  virtual void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da,
                               Queue& queue) const = 0;
  virtual void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c,
                                Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_MATMUL_H_
