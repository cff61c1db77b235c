#include "model/mlp_block.h"

#include "kernels/ops/matmul.h"

namespace model {

using kernels::DType;
using kernels::Queue;
using kernels::Tensor;

kernels::HiddenDim FirstHidden(MlpLayout layout) {
  return layout == MlpLayout::kDimHidden ? kernels::HiddenDim::kColumns : kernels::HiddenDim::kRows;
}

kernels::HiddenDim SecondHidden(MlpLayout layout) {
  return layout == MlpLayout::kHiddenDim ? kernels::HiddenDim::kRows : kernels::HiddenDim::kColumns;
}

void MlpActivations::Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory) {
  memory.Add(&a, "mlp a", DType::kBF16, {shape.slots, shape.slot_tokens, config.mlp_dim});
  memory.Add(&b, "mlp b", DType::kBF16, {shape.slots, shape.slot_tokens, config.mlp_dim});
}

namespace {

// dw += the weight's gradient in the weight's orientation: of `hidden` [slots, T, hidden] and `dim`
// [slots, T, D], whichever are the inputs and which the outputs' gradients.
void AddGradient(Tensor hidden, Tensor dim, kernels::HiddenDim orientation, Tensor dw,
                 Queue& queue) {
  const bool rows = orientation == kernels::HiddenDim::kRows;
  const Tensor first = rows ? hidden : dim, second = rows ? dim : hidden;
  kernels::WeightGrad(first, second, dw.Reshape({-1, first.cols(), second.cols()}), queue);
}

}  // namespace

void MlpForward(const MlpWeights& weights, Tensor u, Tensor residual, MlpActivations& saved,
                Tensor out, Queue& queue) {
  const bool rows = weights.proj_hidden == kernels::HiddenDim::kRows;
  kernels::LinearRelu2(u, weights.c_fc.value, weights.fc_hidden, saved.a, saved.b, queue);
  kernels::MatMul(saved.b, weights.c_proj.value, out, {.trans_b = !rows, .beta = 1.0f}, residual,
                  queue);
}

void MlpBackward(const MlpWeights& weights, Tensor u, const MlpActivations& saved, Tensor dout,
                 Tensor da, Tensor du, Queue& queue) {
  const bool rows = weights.fc_hidden == kernels::HiddenDim::kRows;
  AddGradient(saved.b, dout, weights.proj_hidden, weights.c_proj.grad, queue);
  kernels::LinearRelu2Grad(dout, weights.c_proj.value, weights.proj_hidden, saved.a, da, queue);
  AddGradient(da, u, weights.fc_hidden, weights.c_fc.grad, queue);
  kernels::MatMul(da, weights.c_fc.value, du, {.trans_b = !rows}, queue);
}

}  // namespace model
