// Fills, casts, copies, sums, the search for non-finite values and what follows from it.
#ifndef KERNELS_OPS_ELEMENTWISE_H_
#define KERNELS_OPS_ELEMENTWISE_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// Every element of x (any dtype) becomes all zero bits.
void FillZero(Tensor x, Queue& queue);

// y = x, element by element, converted: f32 <-> bf16 (to nearest even) or the same dtype.
// Sizes agree; shapes need not.
void Copy(Tensor x, Tensor y, Queue& queue);

// y += x.  f32 + f32, or bf16 + bf16 with one rounding.
void Add(Tensor x, Tensor y, Queue& queue);

// c = a + b, f32, no overlap but c may be a or b. The node of the deterministic slot tree.
void Sum(Tensor a, Tensor b, Tensor c, Queue& queue);

// x *= factor, f32.
void Scale(Tensor x, float factor, Queue& queue);

// sums[s] = sum of x[s, :], in f32 with an order fixed by T.  x  f32 [slots, T], sums  f32 [slots]
void RowSums(Tensor x, Tensor sums, Queue& queue);

// index[0] = position of the first NaN or infinity in x (f32 or bf16), -1 if there is none.
void FirstNonFinite(Tensor x, Tensor index, Queue& queue);

// y becomes NaN if some found[i] >= 0, that is, if a FirstNonFinite found something; otherwise it
// stays as it is.  found  i64 [n], y  f32 [1]
void PoisonIfFound(Tensor found, Tensor y, Queue& queue);

// guard becomes 0 if x holds a NaN or an infinity; otherwise it stays as it is. An op that reads
// the guard is then held back without the host having to wait.  x  f32, any shape; guard  i32 [1]
void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue);

OpCost FillZeroCost(const Tensor& x);
OpCost CopyCost(const Tensor& x, const Tensor& y);
OpCost AddCost(const Tensor& x, const Tensor& y);
OpCost SumCost(const Tensor& a);
OpCost ScaleCost(const Tensor& x);
OpCost RowSumsCost(const Tensor& x, const Tensor& sums);
OpCost FirstNonFiniteCost(const Tensor& x, const Tensor& index);
OpCost PoisonIfFoundCost(const Tensor& found, const Tensor& y);
OpCost ClearUnlessFiniteCost(const Tensor& x, const Tensor& guard);

class ElementwiseOps {
 public:
  virtual ~ElementwiseOps() = default;
  virtual void FillZero(Tensor x, Queue& queue) const = 0;
  virtual void Copy(Tensor x, Tensor y, Queue& queue) const = 0;
  virtual void Add(Tensor x, Tensor y, Queue& queue) const = 0;
  virtual void Sum(Tensor a, Tensor b, Tensor c, Queue& queue) const = 0;
  virtual void Scale(Tensor x, float factor, Queue& queue) const = 0;
  virtual void RowSums(Tensor x, Tensor sums, Queue& queue) const = 0;
  virtual void FirstNonFinite(Tensor x, Tensor index, Queue& queue) const = 0;
  virtual void PoisonIfFound(Tensor found, Tensor y, Queue& queue) const = 0;
  virtual void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_ELEMENTWISE_H_
