// CautiousMatrixUpdate on the CPU, without its guard. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CPU_CAUTIOUS_H_
#define KERNELS_CPU_CAUTIOUS_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cpu {

void CautiousMatrixUpdate(const CautiousMatrixArgs& args, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_CAUTIOUS_H_
