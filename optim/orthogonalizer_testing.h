// What the tests of all orthogonalisers share.
#ifndef OPTIM_ORTHOGONALIZER_TESTING_H_
#define OPTIM_ORTHOGONALIZER_TESTING_H_

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/orthogonalizer.h"

namespace optim {

// u  bf16 [B, r, c], orthogonalised on the CPU.
inline std::vector<double> Orthogonalized(const Orthogonalizer& orthogonalizer,
                                          const kernels::testing::HostTensor& u) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(2);
  const kernels::Tensor t = u.get();
  const kernels::testing::HostTensor o(kernels::DType::kBF16, t.dims());
  const kernels::testing::HostTensor workspace(
      kernels::DType::kBF16, {orthogonalizer.WorkspaceElements(t.dim(0), t.dim(1), t.dim(2))});
  orthogonalizer.Orthogonalize(u, workspace, o, *queue);
  queue->Synchronize();
  return o.ToDouble();
}

// Of integers, with singular values from 3.4 to 13.7.
inline Matrix Golden6x12() {
  Matrix g;
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 12; ++j) g.push_back((7 * i + 13 * j + 5 * i * j) % 11 - 5);
  }
  return g;
}

}  // namespace optim

#endif  // OPTIM_ORTHOGONALIZER_TESTING_H_
