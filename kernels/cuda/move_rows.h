// Some rows of a table on CUDA: MoveRows of kernels/ops/embedding.h.
#ifndef KERNELS_CUDA_MOVE_ROWS_H_
#define KERNELS_CUDA_MOVE_ROWS_H_

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/embedding.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

// On CUDA: rows of whole vectors of 16 bytes.
void MoveRows(RowMove move, const Tensor& rows, const Tensor& table, const Tensor& packed,
              CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_MOVE_ROWS_H_
