// Ops on whole weights: a learnt factor folded into a weight, and transposed copies and sums for
// weights that are stored both ways.
#ifndef KERNELS_OPS_WEIGHT_H_
#define KERNELS_OPS_WEIGHT_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// y = bf16(scalars[index] * w).  w, y  bf16, same size, no overlap;  scalars  f32 [n]
void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue);

// Backward, from the gradient of y to those of w and of the factor:
//   dscalars[index] += sum of dw * w;   dw <- scalars[index] * dw
//
//   w  bf16   dw  f32, like w, in place   dscalars  f32 [n]
// The sum is f32 (or wider) in an order fixed by the size.
void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars, Queue& queue);

// y = x^T.  x  bf16 or f32 [r, c], y  like x [c, r], no overlap
void TransposeCopy(Tensor x, Tensor y, Queue& queue);

// y += x^T.  x  f32 [r, c], y  f32 [c, r], no overlap
void TransposeAdd(Tensor x, Tensor y, Queue& queue);

OpCost ScaleWeightCost(const Tensor& w, const Tensor& y);
OpCost ScaleWeightGradCost(const Tensor& w, const Tensor& dw);
OpCost TransposeCopyCost(const Tensor& x, const Tensor& y);
OpCost TransposeAddCost(const Tensor& x, const Tensor& y);

class WeightOps {
 public:
  virtual ~WeightOps() = default;
  virtual void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue) const = 0;
  virtual void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                               Queue& queue) const = 0;
  virtual void TransposeCopy(Tensor x, Tensor y, Queue& queue) const = 0;
  virtual void TransposeAdd(Tensor x, Tensor y, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_WEIGHT_H_
