// AdamUpdate and AdamFlat on CUDA. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CUDA_ADAM_H_
#define KERNELS_CUDA_ADAM_H_

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cuda {

void AdamUpdate(const AdamArgs& args, CudaQueue& queue);
void AdamFlat(const AdamFlatArgs& args, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ADAM_H_
