// The MLP's wide products with the squared ReLU in the product's own epilogue, for Hopper
// (sm_90a): what the library's product and a pass over its output do, without that pass.
//
// Sums in f32, in an order that depends on k alone: a row's bits depend neither on m nor on the
// run. The sums' order is not the library's. Both calls can be captured in a CUDA graph.
#ifndef KERNELS_CUDA_RELU2_GEMM_H_
#define KERNELS_CUDA_RELU2_GEMM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/ops/matmul.h"

namespace kernels::cuda {

// All pointers are multiples of 16 bytes. m >= 1, n a multiple of 128, k of 64.
struct Relu2GemmShape {
  int64_t m, n, k;
  HiddenDim hidden;  // w is [n, k] with kRows, [k, n] with kColumns
};

// Whether the current device and the shape are what these kernels are for.
bool Relu2GemmSupports(const Relu2GemmShape& shape);

// a = x w, b = max(a, 0)^2 of the rounded a. x is [m, k], a and b are [m, n].
void Relu2Gemm(const BF16* x, const BF16* w, BF16* a, BF16* b, const Relu2GemmShape& shape,
               int sm_count, cudaStream_t stream);

// da = (dy w, rounded) * 2 max(a, 0). dy is [m, k], a and da are [m, n]; da may be a.
void Relu2GradGemm(const BF16* dy, const BF16* w, const BF16* a, BF16* da,
                   const Relu2GemmShape& shape, int sm_count, cudaStream_t stream);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_RELU2_GEMM_H_
