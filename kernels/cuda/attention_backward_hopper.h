// The two ways of attention's backward pass: with Hopper's own instructions, and portable.
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_H_
#define KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_H_

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/cuda_queue.h"

namespace kernels::cuda {

// Heads of 128 on a card of compute capability 9, in a build for sm_90a.
bool AttentionGradHopperSupports(const AttentionProblem& problem);
// As LaunchAttentionGrad. Scratch: 8 bytes a token, 4 for each 128 tokens of a head and slot.
void LaunchAttentionGradHopper(const AttentionProblem& problem, const AttentionGradPointers& grad,
                               CudaQueue& queue);
// attention_backward.cu
void LaunchAttentionGradPortable(const AttentionProblem& problem, const AttentionGradPointers& grad,
                                 CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_H_
