#include "model/mlp_block.h"

#include "kernels/ops/matmul.h"

namespace model {

using kernels::DType;
using kernels::Queue;
using kernels::Tensor;

void MlpActivations::Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory) {
  memory.Add(&a, "mlp a", DType::kBF16, {shape.slots, shape.slot_tokens, config.mlp_dim});
  memory.Add(&b, "mlp b", DType::kBF16, {shape.slots, shape.slot_tokens, config.mlp_dim});
}

void MlpForward(const MlpWeights& weights, Tensor u, Tensor residual, MlpActivations& saved,
                Tensor out, Queue& queue) {
  kernels::LinearRelu2(u, weights.c_fc.value, saved.a, saved.b, queue);
  kernels::MatMul(saved.b, weights.c_proj.value, out, {.trans_b = true, .beta = 1.0f}, residual,
                  queue);
}

void MlpBackward(const MlpWeights& weights, Tensor u, const MlpActivations& saved, Tensor dout,
                 Tensor da, Tensor du, Queue& queue) {
  const int64_t dim = u.cols(), hidden = saved.a.cols();
  kernels::WeightGrad(dout, saved.b, weights.c_proj.grad.Reshape({-1, dim, hidden}), queue);
  kernels::LinearRelu2Grad(dout, weights.c_proj.value, saved.a, da, queue);
  // c_fc is stored [in, out], so its gradient is u^T da.
  kernels::WeightGrad(u, da, weights.c_fc.grad.Reshape({-1, dim, hidden}), queue);
  kernels::MatMul(da, weights.c_fc.value, du, {.trans_b = true}, queue);
}

}  // namespace model
