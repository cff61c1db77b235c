// NormalizeByGram on the CPU. The contract is in kernels/ops/optimizer.h.
#ifndef KERNELS_CPU_GRAM_NORM_H_
#define KERNELS_CPU_GRAM_NORM_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/optimizer.h"

namespace kernels::cpu {

void NormalizeByGram(const GramNormArgs& args, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_GRAM_NORM_H_
