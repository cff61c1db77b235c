#include "kernels/ops/weight.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckFactor(const char* op, const Tensor& scalars, int index) {
  CHECK(scalars.dtype() == DType::kF32 && scalars.rank() == 1) << op << ": scalars " << scalars;
  CHECK(index >= 0 && index < scalars.size()) << op << ": index " << index << ", " << scalars;
}

void CheckTransposed(const char* op, const Tensor& x, const Tensor& y) {
  CHECK(x.rank() == 2 && y.rank() == 2 && x.dim(0) == y.dim(1) && x.dim(1) == y.dim(0) &&
        x.dtype() == y.dtype() && x.data() != y.data())
      << op << ": x " << x << ", y " << y;
}

}  // namespace

void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue) {
  constexpr char kOp[] = "ScaleWeight";
  CheckFactor(kOp, scalars, index);
  CHECK(w.dtype() == DType::kBF16 && y.dtype() == DType::kBF16 && w.size() == y.size() &&
        w.data() != y.data())
      << kOp << ": w " << w << ", y " << y;
  queue.ops().weight->ScaleWeight(w, scalars, index, y, queue);
}

void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                     Queue& queue) {
  constexpr char kOp[] = "ScaleWeightGrad";
  CheckFactor(kOp, scalars, index);
  CheckFactor(kOp, dscalars, index);
  CHECK(w.dtype() == DType::kBF16 && dw.dtype() == DType::kF32 && w.size() == dw.size())
      << kOp << ": w " << w << ", dw " << dw;
  queue.ops().weight->ScaleWeightGrad(w, scalars, index, dw, dscalars, queue);
}

void TransposeCopy(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "TransposeCopy";
  CHECK(x.dtype() == DType::kBF16 || x.dtype() == DType::kF32) << kOp << ": x " << x;
  CheckTransposed(kOp, x, y);
  queue.ops().weight->TransposeCopy(x, y, queue);
}

void TransposeAdd(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "TransposeAdd";
  CHECK(x.dtype() == DType::kF32) << kOp << ": x " << x;
  CheckTransposed(kOp, x, y);
  queue.ops().weight->TransposeAdd(x, y, queue);
}

}  // namespace kernels
