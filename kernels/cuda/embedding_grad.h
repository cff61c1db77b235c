// The gradient of an embedding table on CUDA: EmbeddingGrad of kernels/ops/embedding.h.
#ifndef KERNELS_CUDA_EMBEDDING_GRAD_H_
#define KERNELS_CUDA_EMBEDDING_GRAD_H_

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

// On CUDA: D is a multiple of 8.
void EmbeddingGrad(const Tensor& tokens, const Tensor& de, const Tensor& dtable,
                   const Tensor& workspace, CudaQueue& queue);
int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_EMBEDDING_GRAD_H_
