// Checks of arguments that several ops share. Each CHECK-fails with the op's name, the argument's
// and its shape: "HeadGate: y bf16 [2, 8, 64], wanted bf16 [2, 16, 64]". For the .cc files of this
// folder. Arguments come in this order everywhere: op, name, tensor, what it has to be.
#ifndef KERNELS_OPS_CHECKS_H_
#define KERNELS_OPS_CHECKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace kernels {

// Whether its elements are f32 or bf16.
inline bool IsFloat(const Tensor& t) {
  return t.dtype() == DType::kF32 || t.dtype() == DType::kBF16;
}

// `tensor` is not empty and has this dtype and shape.
void CheckTensor(const char* op, const char* name, const Tensor& tensor, DType dtype,
                 absl::Span<const int64_t> dims);
// `tensor` has this dtype and the shape of `like`, which the message calls `like_name`.
void CheckLike(const char* op, const char* name, const Tensor& tensor, DType dtype,
               const char* like_name, const Tensor& like);
// `tensor` has this dtype and this number of dims.
void CheckRank(const char* op, const char* name, const Tensor& tensor, DType dtype, int rank);
// `grad` is f32 [leaves, dims...], where there is one leaf for all slots or one for each.
void CheckLeaves(const char* op, const char* name, const Tensor& grad, int64_t slots,
                 absl::Span<const int64_t> dims);

}  // namespace kernels

#endif  // KERNELS_OPS_CHECKS_H_
