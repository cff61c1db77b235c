// AdamUpdate and AdamFlat on the CPU, without their guards. The contract is in
// kernels/ops/optimizer.h.
#ifndef KERNELS_CPU_ADAM_H_
#define KERNELS_CPU_ADAM_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cpu {

void AdamUpdate(const AdamArgs& args, ThreadPool& pool);
void AdamFlat(const AdamFlatArgs& args, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_ADAM_H_
