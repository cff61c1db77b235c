#include "kernels/ops/elementwise.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

void FillZero(Tensor x, Queue& queue) {
  const TraceScope scope("FillZero", queue, [&] { return FillZeroCost(x); });
  queue.ops().elementwise->FillZero(x, queue);
}

void Copy(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "Copy";
  CHECK_EQ(x.size(), y.size()) << kOp << ": x " << x << ", y " << y;
  CHECK(x.dtype() == y.dtype() || (IsFloat(x) && IsFloat(y))) << kOp << ": x " << x << ", y " << y;
  const TraceScope scope(kOp, queue, [&] { return CopyCost(x, y); });
  queue.ops().elementwise->Copy(x, y, queue);
}

void Add(Tensor x, Tensor y, Queue& queue) {
  constexpr char kOp[] = "Add";
  CHECK(x.size() == y.size() && x.dtype() == y.dtype() && IsFloat(x))
      << kOp << ": x " << x << ", y " << y;
  const TraceScope scope(kOp, queue, [&] { return AddCost(x, y); });
  queue.ops().elementwise->Add(x, y, queue);
}

void Sum(Tensor a, Tensor b, Tensor c, Queue& queue) {
  constexpr char kOp[] = "Sum";
  CHECK(a.size() == b.size() && a.size() == c.size()) << kOp << ": " << a << ", " << b << ", " << c;
  CHECK(a.dtype() == DType::kF32 && b.dtype() == DType::kF32 && c.dtype() == DType::kF32)
      << kOp << ": " << a << ", " << b << ", " << c;
  const TraceScope scope(kOp, queue, [&] { return SumCost(a); });
  queue.ops().elementwise->Sum(a, b, c, queue);
}

void Scale(Tensor x, float factor, Queue& queue) {
  constexpr char kOp[] = "Scale";
  CHECK_EQ(x.dtype(), DType::kF32) << kOp << ": " << x;
  const TraceScope scope(kOp, queue, [&] { return ScaleCost(x); });
  queue.ops().elementwise->Scale(x, factor, queue);
}

void RowSums(Tensor x, Tensor sums, Queue& queue) {
  constexpr char kOp[] = "RowSums";
  CHECK(x.dtype() == DType::kF32 && sums.dtype() == DType::kF32 && x.rank() == 2 &&
        sums.size() == x.dim(0))
      << kOp << ": x " << x << ", sums " << sums;
  const TraceScope scope(kOp, queue, [&] { return RowSumsCost(x, sums); });
  queue.ops().elementwise->RowSums(x, sums, queue);
}

void FirstNonFinite(Tensor x, Tensor index, Queue& queue) {
  constexpr char kOp[] = "FirstNonFinite";
  CHECK(IsFloat(x) && index.dtype() == DType::kI64 && index.size() == 1)
      << kOp << ": x " << x << ", index " << index;
  const TraceScope scope(kOp, queue, [&] { return FirstNonFiniteCost(x, index); });
  queue.ops().elementwise->FirstNonFinite(x, index, queue);
}

void PoisonIfFound(Tensor found, Tensor y, Queue& queue) {
  constexpr char kOp[] = "PoisonIfFound";
  CHECK(found.dtype() == DType::kI64 && y.dtype() == DType::kF32 && y.size() == 1)
      << kOp << ": found " << found << ", y " << y;
  const TraceScope scope(kOp, queue, [&] { return PoisonIfFoundCost(found, y); });
  queue.ops().elementwise->PoisonIfFound(found, y, queue);
}

void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue) {
  constexpr char kOp[] = "ClearUnlessFinite";
  CHECK(x.dtype() == DType::kF32 && guard.dtype() == DType::kI32 && guard.size() == 1)
      << kOp << ": x " << x << ", guard " << guard;
  const TraceScope scope(kOp, queue, [&] { return ClearUnlessFiniteCost(x, guard); });
  queue.ops().elementwise->ClearUnlessFinite(x, guard, queue);
}

OpCost FillZeroCost(const Tensor& x) { return MemoryCost(OpPhase::kOther, Text(x), Bytes(x)); }

OpCost CopyCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + " to " + Name(y.dtype()), Bytes(x) + Bytes(y));
}

OpCost AddCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kNormElementwise, Text(x), Bytes(x) + 2 * Bytes(y));
}

OpCost SumCost(const Tensor& a) { return MemoryCost(OpPhase::kOther, Text(a), 3 * Bytes(a)); }

OpCost ScaleCost(const Tensor& x) { return MemoryCost(OpPhase::kOther, Text(x), 2 * Bytes(x)); }

OpCost RowSumsCost(const Tensor& x, const Tensor& sums) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(sums));
}

OpCost FirstNonFiniteCost(const Tensor& x, const Tensor& index) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(index));
}

OpCost PoisonIfFoundCost(const Tensor& found, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(found), Bytes(found) + Bytes(y));
}

OpCost ClearUnlessFiniteCost(const Tensor& x, const Tensor& guard) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(guard));
}

}  // namespace kernels
