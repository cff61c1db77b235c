// Orthogonalisers: replace a matrix by (nearly) its polar factor, all singular values near 1.
#ifndef OPTIM_ORTHOGONALIZER_H_
#define OPTIM_ORTHOGONALIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace optim {

class Orthogonalizer {
 public:
  virtual ~Orthogonalizer() = default;
  virtual absl::string_view name() const = 0;
  // bf16 elements of workspace that a batch of rows x cols matrices needs.
  virtual int64_t WorkspaceElements(int64_t batch, int64_t rows, int64_t cols) const = 0;
  // o = orth(u), matrix by matrix; the bits of one do not depend on the others. A zero matrix
  // stays zero.
  //
  //   u, o       bf16 [batch, rows, cols], no overlap; u stays as it is
  //   workspace  bf16, at least WorkspaceElements()
  virtual void Orthogonalize(kernels::Tensor u, kernels::Tensor workspace, kernels::Tensor o,
                             kernels::Queue& queue) const = 0;
};

// By name, from those that are compiled in. InvalidArgument lists them.
absl::StatusOr<std::unique_ptr<Orthogonalizer>> MakeOrthogonalizer(const std::string& name);

}  // namespace optim

#endif  // OPTIM_ORTHOGONALIZER_H_
