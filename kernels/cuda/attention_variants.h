// Which of attention's kernels the op runs, for tests of both.
#ifndef KERNELS_CUDA_ATTENTION_VARIANTS_H_
#define KERNELS_CUDA_ATTENTION_VARIANTS_H_

#include "kernels/ops/attention.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

// Whether the op's forward pass runs on the current device by the kernel for Hopper.
bool AttentionHopperSupports(const AttentionArgs& args);
// The op's forward pass by the kernel for any device.
void AttentionPortable(const AttentionArgs& args, Queue& queue);

// The same of the backward pass.
bool AttentionGradHopperSupports(const AttentionArgs& args);
void AttentionGradPortable(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq,
                           Tensor dk, Tensor dv, Queue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_VARIANTS_H_
