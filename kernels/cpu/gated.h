// The CPU's gated ops by file: gated_qkv.cc and gated_skip.cc. Contracts in kernels/ops/gated.h.
#ifndef KERNELS_CPU_GATED_H_
#define KERNELS_CPU_GATED_H_

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/gated.h"

namespace kernels::cpu {

void GatedQkv(const GatedQkvArgs& args, ThreadPool& pool);
void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, ThreadPool& pool);
void GatedSkip(const GatedSkipArgs& args, ThreadPool& pool);
void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, ThreadPool& pool);

}  // namespace kernels::cpu

#endif  // KERNELS_CPU_GATED_H_
