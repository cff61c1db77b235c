// The gradient of a weight from an fp8 product whose left operand lies row by row, as its producer
// wrote it: no transposed copy of it is made.
#ifndef KERNELS_CUDA_FP8_GRAD_GEMM_H_
#define KERNELS_CUDA_FP8_GRAD_GEMM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kernels::cuda {

struct Fp8GradGemmShape {
  int64_t rows = 0;         // R, summed over
  int64_t classes = 0;      // V
  int64_t dim = 0;          // D
  bool transposed = false;  // dw lies [D, V] instead of [V, D]
};

// For Hopper, with R, V and D multiples of 16.
bool Fp8GradGemmSupports(const Fp8GradGemmShape& shape);

// dw += alpha g^T x.   g e5m2 [R, V]   x_t e4m3 [D, R]   dw f32 [V, D] or [D, V]
//
// Sums of 128 rows are made by the tensor cores, in their short accumulator, and added up in f32,
// in an order that depends on the shape alone. Sixteen bytes of alignment for all. `sm_count` of
// the card.
void Fp8GradGemm(const uint8_t* g, const uint8_t* x_t, float alpha, float* dw,
                 const Fp8GradGemmShape& shape, int sm_count, cudaStream_t stream);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_FP8_GRAD_GEMM_H_
