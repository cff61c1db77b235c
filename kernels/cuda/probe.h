#ifndef KERNELS_CUDA_PROBE_H_
#define KERNELS_CUDA_PROBE_H_

namespace kernels::cuda {

// Whether this binary has machine code that the current device can run.
bool KernelsRunHere();

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_PROBE_H_
