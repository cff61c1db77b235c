// Which of attention's kernels the op runs, for tests of both.
#ifndef KERNELS_CUDA_ATTENTION_WAYS_H_
#define KERNELS_CUDA_ATTENTION_WAYS_H_

#include "kernels/ops/attention.h"
#include "kernels/queue.h"

namespace kernels::cuda {

// Whether the op's forward pass runs on the current device by the kernel for Hopper.
bool AttentionHopperTakes(const AttentionArgs& args);
// The op's forward pass by the kernel for any device.
void AttentionPortable(const AttentionArgs& args, Queue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_WAYS_H_
