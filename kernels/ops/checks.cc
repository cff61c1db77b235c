#include "kernels/ops/checks.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// Whether the dims of `tensor` from `first` on are `dims`.
bool HasDims(const Tensor& tensor, int first, absl::Span<const int64_t> dims) {
  if (tensor.rank() != first + static_cast<int>(dims.size())) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (tensor.dim(first + static_cast<int>(i)) != dims[i]) return false;
  }
  return true;
}

}  // namespace

void CheckTensor(const char* op, const char* name, const Tensor& tensor, DType dtype,
                 absl::Span<const int64_t> dims) {
  CHECK(tensor) << op << ": " << name << " is empty";
  CHECK(tensor.dtype() == dtype && HasDims(tensor, 0, dims))
      << op << ": " << name << " " << tensor << ", wanted " << dtype << " ["
      << absl::StrJoin(dims, ", ") << "]";
}

void CheckLike(const char* op, const char* name, const Tensor& tensor, DType dtype,
               const char* like_name, const Tensor& like) {
  CHECK(tensor.dtype() == dtype && SameShape(tensor, like))
      << op << ": " << name << " " << tensor << ", " << like_name << " " << like;
}

void CheckRank(const char* op, const char* name, const Tensor& tensor, DType dtype, int rank) {
  CHECK(tensor.dtype() == dtype && tensor.rank() == rank)
      << op << ": " << name << " " << tensor << ", wanted " << dtype << " of " << rank << " dims";
}

void CheckLeaves(const char* op, const char* name, const Tensor& grad, int64_t slots,
                 absl::Span<const int64_t> dims) {
  CHECK(grad) << op << ": " << name << " is empty";
  CHECK(grad.dtype() == DType::kF32 && HasDims(grad, 1, dims) &&
        (grad.dim(0) == 1 || grad.dim(0) == slots))
      << op << ": " << name << " " << grad << ", wanted f32 [leaves, " << absl::StrJoin(dims, ", ")
      << "] of one leaf or " << slots;
}

}  // namespace kernels
