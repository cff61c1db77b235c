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
  const bool rows = weights.hidden == kernels::HiddenDim::kRows;
  kernels::LinearRelu2(u, weights.c_fc.value, weights.hidden, saved.a, saved.b, queue);
  kernels::MatMul(saved.b, weights.c_proj.value, out, {.trans_b = !rows, .beta = 1.0f}, residual,
                  queue);
}

void MlpBackward(const MlpWeights& weights, Tensor u, const MlpActivations& saved, Tensor dout,
                 Tensor da, Tensor du, Queue& queue) {
  const int64_t dim = u.cols(), hidden = saved.a.cols();
  const bool rows = weights.hidden == kernels::HiddenDim::kRows;
  const std::vector<int64_t> shape = {-1, rows ? hidden : dim, rows ? dim : hidden};
  const Tensor dc_proj = weights.c_proj.grad.Reshape(shape);
  const Tensor dc_fc = weights.c_fc.grad.Reshape(shape);
  // The gradients have the weights' orientation: hidden leads or comes last.
  kernels::WeightGrad(rows ? saved.b : dout, rows ? dout : saved.b, dc_proj, queue);
  kernels::LinearRelu2Grad(dout, weights.c_proj.value, weights.hidden, saved.a, da, queue);
  kernels::WeightGrad(rows ? da : u, rows ? u : da, dc_fc, queue);
  kernels::MatMul(da, weights.c_fc.value, du, {.trans_b = !rows}, queue);
}

}  // namespace model
