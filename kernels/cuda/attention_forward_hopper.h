// The two ways of attention's forward pass: with Hopper's own instructions, and portable.
#ifndef KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_H_
#define KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_H_

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/cuda_queue.h"

namespace kernels::cuda {

// Heads of 128 on a card of compute capability 9, in a build for sm_90a.
bool AttentionHopperSupports(const AttentionProblem& problem);
// As LaunchAttention. Scratch: 4 bytes.
void LaunchAttentionHopper(const AttentionProblem& problem, CudaQueue& queue);
// attention_forward.cu
void LaunchAttentionPortable(const AttentionProblem& problem, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_H_
