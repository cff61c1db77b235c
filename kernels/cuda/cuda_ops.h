// The CUDA backend's op families, each in a file of its own. An object serves one device.
#ifndef KERNELS_CUDA_CUDA_OPS_H_
#define KERNELS_CUDA_CUDA_OPS_H_

#include <memory>

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

class Gemm;

std::unique_ptr<AttentionOps> MakeCudaAttentionOps();
std::unique_ptr<ElementwiseOps> MakeCudaElementwiseOps();
std::unique_ptr<EmbeddingOps> MakeCudaEmbeddingOps();
std::unique_ptr<HeadOps> MakeCudaHeadOps(Gemm& gemm);
std::unique_ptr<MatMulOps> MakeCudaMatMulOps(Gemm& gemm);
std::unique_ptr<NormOps> MakeCudaNormOps();
std::unique_ptr<OptimizerOps> MakeCudaOptimizerOps();
std::unique_ptr<QkvOps> MakeCudaQkvOps();
std::unique_ptr<GatedOps> MakeCudaGatedOps();
std::unique_ptr<WeightOps> MakeCudaWeightOps();

}  // namespace kernels

#endif  // KERNELS_CUDA_CUDA_OPS_H_
