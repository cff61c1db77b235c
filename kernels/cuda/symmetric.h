// Symmetric products of one matrix, or a batch of them: half of the output's tiles are computed
// and each is stored twice, so that the result is symmetric bit for bit.
#ifndef KERNELS_CUDA_SYMMETRIC_H_
#define KERNELS_CUDA_SYMMETRIC_H_

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"

namespace kernels::cuda {

// c = alpha * x x^T + beta * addend for each of `batch` matrices; any rows and cols.
//
//   x  bf16 [batch, rows, cols]    c, addend  bf16 [batch, rows, rows]
//
// addend is symmetric and read if beta != 0. c overlaps neither x nor addend.
void SymmetricProduct(const BF16* x, const BF16* addend, BF16* c, int64_t batch, int64_t rows,
                      int64_t cols, float alpha, float beta, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_SYMMETRIC_H_
