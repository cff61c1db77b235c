#include "kernels/ops/weight.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckFactor(const char* op, const char* name, const Tensor& scalars, int index) {
  CheckRank(op, name, scalars, DType::kF32, 1);
  CHECK(index >= 0 && index < scalars.size())
      << op << ": index " << index << ", " << name << " " << scalars;
}

void CheckTransposed(const char* op, const Tensor& x, const Tensor& y) {
  CHECK(x.rank() == 2 && y.rank() == 2 && x.dim(0) == y.dim(1) && x.dim(1) == y.dim(0) &&
        x.dtype() == y.dtype() && x.data() != y.data())
      << op << ": x " << x << ", y " << y;
}

}  // namespace

void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue) {
  constexpr char kOp[] = "ScaleWeight";
  CheckFactor(kOp, "scalars", scalars, index);
  CHECK(w.dtype() == DType::kBF16 && y.dtype() == DType::kBF16 && w.size() == y.size() &&
        w.data() != y.data())
      << kOp << ": w " << w << ", y " << y;
  const TraceScope scope(kOp, queue, [&] { return ScaleWeightCost(w, y); });
  queue.ops().weight->ScaleWeight(w, scalars, index, y, queue);
}

void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                     Queue& queue) {
  constexpr char kOp[] = "ScaleWeightGrad";
  CheckFactor(kOp, "scalars", scalars, index);
  CheckFactor(kOp, "dscalars", dscalars, index);
  CHECK(w.dtype() == DType::kBF16 && dw.dtype() == DType::kF32 && w.size() == dw.size())
      << kOp << ": w " << w << ", dw " << dw;
  const TraceScope scope(kOp, queue, [&] { return ScaleWeightGradCost(w, dw); });
  queue.ops().weight->ScaleWeightGrad(w, scalars, index, dw, dscalars, queue);
}

void TransposeCopy(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "TransposeCopy";
  CHECK(IsFloat(x)) << kOp << ": x " << x;
  CheckTransposed(kOp, x, y);
  const TraceScope scope(kOp, queue, [&] { return TransposeCopyCost(x, y); });
  queue.ops().weight->TransposeCopy(x, y, queue);
}

void TransposeAdd(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "TransposeAdd";
  CHECK_EQ(x.dtype(), DType::kF32) << kOp << ": x " << x;
  CheckTransposed(kOp, x, y);
  const TraceScope scope(kOp, queue, [&] { return TransposeAddCost(x, y); });
  queue.ops().weight->TransposeAdd(x, y, queue);
}

OpCost ScaleWeightCost(const Tensor& w, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(w), Bytes(w) + Bytes(y));
}

OpCost ScaleWeightGradCost(const Tensor& w, const Tensor& dw) {
  return MemoryCost(OpPhase::kOther, Text(w), Bytes(w) + 2 * Bytes(dw));
}

OpCost TransposeCopyCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + "^T", Bytes(x) + Bytes(y));
}

OpCost TransposeAddCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + "^T", Bytes(x) + 2 * Bytes(y));
}

}  // namespace kernels
