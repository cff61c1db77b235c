// TwinRailUpdate on CUDA. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CUDA_TWIN_RAIL_H_
#define KERNELS_CUDA_TWIN_RAIL_H_

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cuda {

void TwinRailUpdate(const TwinRailArgs& args, CudaQueue& queue);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_TWIN_RAIL_H_
