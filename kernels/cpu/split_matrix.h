// SplitMatrixUpdate on the CPU, without its guard. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CPU_SPLIT_MATRIX_H_
#define KERNELS_CPU_SPLIT_MATRIX_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cpu {

void SplitMatrixUpdate(const SplitMatrixArgs& args, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_SPLIT_MATRIX_H_
