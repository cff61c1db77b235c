// The sparse attention gate's part of QkvOps. The contracts are in kernels/ops/qkv.h.
#ifndef KERNELS_CUDA_HEAD_GATE_H_
#define KERNELS_CUDA_HEAD_GATE_H_

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/qkv.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

// On CUDA: head_dim 64 or 128, at most 32 heads, k <= 16.
void HeadGate(const Tensor& o, const Tensor& u, const Tensor& gate_w, const Tensor& y,
              CudaQueue& queue);
void HeadGateGrad(const HeadGateGradArgs& args, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_HEAD_GATE_H_
