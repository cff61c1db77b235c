// TwinRailUpdate on the CPU, without its guard. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CPU_TWIN_RAIL_H_
#define KERNELS_CPU_TWIN_RAIL_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cpu {

void TwinRailUpdate(const TwinRailArgs& args, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_TWIN_RAIL_H_
