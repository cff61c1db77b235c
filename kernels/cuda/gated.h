// The CUDA backend's gated ops by file: gated.cu has the rotary part of GatedQkv, gated_values.cu
// its values, gated_skip.cu the skip connection. Contracts in kernels/ops/gated.h.
#ifndef KERNELS_CUDA_GATED_H_
#define KERNELS_CUDA_GATED_H_

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/gated.h"

namespace kernels::cuda {

// v of GatedQkv.
void GatedValues(const GatedQkvArgs& args, CudaQueue& queue);
// The last third of dqkv, dvalue_rows, du_head and dvalue_gate of GatedQkvGrad.
void GatedValuesGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, CudaQueue& queue);

void GatedSkip(const GatedSkipArgs& args, CudaQueue& queue);
void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_GATED_H_
