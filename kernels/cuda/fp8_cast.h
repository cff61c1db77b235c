// Operands of fp8 products: quantised, and transposed, because the tensor cores of Hopper take
// 8-bit operands only with the contracted index contiguous.
#ifndef KERNELS_CUDA_FP8_CAST_H_
#define KERNELS_CUDA_FP8_CAST_H_

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"

namespace kernels::cuda {

// q = e4m3(x * (1 / scale)), saturating.   x bf16 [rows, cols]   q [rows, cols]
// cols is a multiple of 16.
void QuantiseE4M3(const BF16* x, int64_t rows, int64_t cols, float scale, uint8_t* q,
                  CudaQueue& queue);

// The same, and q_t [cols, rows], the transpose of q. rows and cols are multiples of 16.
void QuantiseE4M3Both(const BF16* x, int64_t rows, int64_t cols, float scale, uint8_t* q,
                      uint8_t* q_t, CudaQueue& queue);

// q [rows, cols] bytes to q_t [cols, rows]; rows and cols are multiples of 16.
void TransposeBytes(const uint8_t* q, int64_t rows, int64_t cols, uint8_t* q_t, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_FP8_CAST_H_
