#include "kernels/ops/elementwise.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

bool IsFloat(const Tensor& t) { return t.dtype() == DType::kF32 || t.dtype() == DType::kBF16; }

}  // namespace

void FillZero(Tensor x, Queue& queue) { queue.ops().elementwise->FillZero(x, queue); }

void Copy(Tensor x, Tensor y, Queue& queue) {
  CHECK_EQ(x.size(), y.size()) << "Copy: x " << x << ", y " << y;
  CHECK(x.dtype() == y.dtype() || (IsFloat(x) && IsFloat(y))) << "Copy: x " << x << ", y " << y;
  queue.ops().elementwise->Copy(x, y, queue);
}

void Add(Tensor x, Tensor y, Queue& queue) {
  CHECK(x.size() == y.size() && x.dtype() == y.dtype() && IsFloat(x))
      << "Add: x " << x << ", y " << y;
  queue.ops().elementwise->Add(x, y, queue);
}

void Sum(Tensor a, Tensor b, Tensor c, Queue& queue) {
  CHECK(a.size() == b.size() && a.size() == c.size()) << "Sum: " << a << ", " << b << ", " << c;
  CHECK(a.dtype() == DType::kF32 && b.dtype() == DType::kF32 && c.dtype() == DType::kF32)
      << "Sum: " << a << ", " << b << ", " << c;
  queue.ops().elementwise->Sum(a, b, c, queue);
}

void Scale(Tensor x, float factor, Queue& queue) {
  CHECK_EQ(x.dtype(), DType::kF32) << "Scale: " << x;
  queue.ops().elementwise->Scale(x, factor, queue);
}

void RowSums(Tensor x, Tensor sums, Queue& queue) {
  CHECK(x.dtype() == DType::kF32 && sums.dtype() == DType::kF32 && x.rank() == 2 &&
        sums.size() == x.dim(0))
      << "RowSums: x " << x << ", sums " << sums;
  queue.ops().elementwise->RowSums(x, sums, queue);
}

void FirstNonFinite(Tensor x, Tensor index, Queue& queue) {
  CHECK(IsFloat(x) && index.dtype() == DType::kI64 && index.size() == 1)
      << "FirstNonFinite: x " << x << ", index " << index;
  queue.ops().elementwise->FirstNonFinite(x, index, queue);
}

void PoisonIfFound(Tensor found, Tensor y, Queue& queue) {
  CHECK(found.dtype() == DType::kI64 && y.dtype() == DType::kF32 && y.size() == 1)
      << "PoisonIfFound: found " << found << ", y " << y;
  queue.ops().elementwise->PoisonIfFound(found, y, queue);
}

void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue) {
  CHECK(x.dtype() == DType::kF32 && guard.dtype() == DType::kI32 && guard.size() == 1)
      << "ClearUnlessFinite: x " << x << ", guard " << guard;
  queue.ops().elementwise->ClearUnlessFinite(x, guard, queue);
}

}  // namespace kernels
