// The CPU's op families, each in a file of its own. Tasks are cut by shape alone, so the pool's
// size changes no bit.
#ifndef KERNELS_CPU_CPU_OPS_H_
#define KERNELS_CPU_CPU_OPS_H_

#include <memory>

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/head.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/qkv.h"
#include "kernels/ops/weight.h"

namespace kernels {

std::unique_ptr<AttentionOps> MakeCpuAttentionOps(ThreadPool& pool);
std::unique_ptr<ElementwiseOps> MakeCpuElementwiseOps(ThreadPool& pool);
std::unique_ptr<EmbeddingOps> MakeCpuEmbeddingOps(ThreadPool& pool);
std::unique_ptr<HeadOps> MakeCpuHeadOps(ThreadPool& pool);
std::unique_ptr<MatMulOps> MakeCpuMatMulOps(ThreadPool& pool);
std::unique_ptr<NormOps> MakeCpuNormOps(ThreadPool& pool);
std::unique_ptr<OptimizerOps> MakeCpuOptimizerOps(ThreadPool& pool);
std::unique_ptr<QkvOps> MakeCpuQkvOps(ThreadPool& pool);
std::unique_ptr<GatedOps> MakeCpuGatedOps(ThreadPool& pool);
std::unique_ptr<WeightOps> MakeCpuWeightOps(ThreadPool& pool);

}  // namespace kernels

#endif  // KERNELS_CPU_CPU_OPS_H_
