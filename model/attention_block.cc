#include "model/attention_block.h"

#include "kernels/ops/matmul.h"

namespace model {
namespace {

using kernels::DType;
using kernels::Queue;
using kernels::Tensor;

// dw += dy^T x for rows [begin, begin + dy's width) of a stack of [out, in] rows. A range of rows
// is not dense across leaves, so with several leaves each slot adds to its own.
void StackGrad(Tensor dy, Tensor x, Tensor stack_grad, int64_t begin, Queue& queue) {
  const int64_t leaves = stack_grad.dim(0), out = dy.cols(), in = x.cols();
  const int64_t slots_per_leaf = dy.dim(0) / leaves;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    const Tensor rows = stack_grad.At(leaf).Reshape({-1, in}).Slice(begin, out);
    kernels::WeightGrad(dy.Slice(leaf * slots_per_leaf, slots_per_leaf),
                        x.Slice(leaf * slots_per_leaf, slots_per_leaf), rows.Reshape({1, out, in}),
                        queue);
  }
}

}  // namespace

void AttentionActivations::Plan(const GptConfig& config, const PassShape& shape,
                                PassMemory& memory) {
  const int64_t slots = shape.slots, tokens = shape.slot_tokens, dim = config.dim;
  memory.Add(&qkv, "attn qkv", DType::kBF16, {slots, tokens, 3 * dim});
  memory.Add(&q, "attn q", DType::kBF16, {slots, tokens, dim});
  memory.Add(&k, "attn k", DType::kBF16, {slots, tokens, dim});
  memory.Add(&v, "attn v", DType::kBF16, {slots, tokens, dim});
  memory.Add(&inv_rms, "attn inv_rms", DType::kF32, {slots, tokens, 2 * config.heads});
  memory.Add(&o, "attn o", DType::kBF16, {slots, tokens, dim});
  memory.Add(&lse, "attn lse", DType::kF32, {slots, config.heads, tokens});
}

void AttentionScratch::Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory) {
  const int64_t slots = shape.slots, tokens = shape.slot_tokens, dim = config.dim;
  memory.Add(&gated, "attn gated", DType::kBF16, {slots, tokens, dim});
  if (!shape.train) return;
  memory.Add(&d_o, "attn do", DType::kBF16, {slots, tokens, dim});
  memory.Add(&dq, "attn dq", DType::kBF16, {slots, tokens, dim});
  memory.Add(&dk, "attn dk", DType::kBF16, {slots, tokens, dim});
  memory.Add(&dv, "attn dv", DType::kBF16, {slots, tokens, dim});
  memory.Add(&dqkv, "attn dqkv", DType::kBF16, {slots, tokens, 3 * dim});
  memory.Add(&delta, "attn delta", DType::kF32, {slots, config.heads, tokens});
}

kernels::QkvArgs AttentionBlock::Qkv(const PassInput& input, const AttentionWeights& weights,
                                     const AttentionActivations& saved) const {
  kernels::QkvArgs args;
  args.qkv = saved.qkv;
  args.heads = static_cast<int>(config_.heads);
  args.cos = input.cos;
  args.sin = input.sin;
  args.tokens = input.tokens;
  args.value_table = weights.value_table.value;
  args.scalars = weights.scalars.value;
  args.value_lambda = value_lambda_;
  args.q = saved.q;
  args.k = saved.k;
  args.v = saved.v;
  args.inv_rms = saved.inv_rms;
  return args;
}

kernels::AttentionArgs AttentionBlock::Attend(const PassInput& input,
                                              const AttentionActivations& saved) const {
  kernels::AttentionArgs args;
  args.q = saved.q;
  args.k = saved.k;
  args.v = saved.v;
  args.boundaries = input.boundaries;
  args.heads = static_cast<int>(config_.heads);
  args.window_tokens = long_window_ ? input.long_window_tokens : input.short_window_tokens;
  args.scale = input.attention_scale;
  args.o = saved.o;
  args.lse = saved.lse;
  return args;
}

void AttentionBlock::Forward(const PassInput& input, const AttentionWeights& weights, Tensor u,
                             Tensor residual, AttentionActivations& saved,
                             AttentionScratch& scratch, Tensor out, Queue& queue) const {
  const int64_t dim = config_.dim;
  const Tensor qkv_w = weights.qkvo.value.Slice(0, 3 * dim);
  const Tensor o_w = weights.qkvo.value.Slice(3 * dim, dim);
  kernels::MatMul(u, qkv_w, saved.qkv, {.trans_b = true}, queue);
  kernels::QkvSplitNormRotary(Qkv(input, weights, saved), queue);
  kernels::Attention(Attend(input, saved), queue);
  kernels::HeadGate(saved.o, u, weights.gate.value, scratch.gated, queue);
  kernels::MatMul(scratch.gated, o_w, out, {.trans_b = true, .beta = 1.0f}, residual, queue);
}

void AttentionBlock::Backward(const PassInput& input, const AttentionWeights& weights, Tensor u,
                              const AttentionActivations& saved, AttentionScratch& scratch,
                              Tensor dout, Tensor du, Tensor du_head, Tensor dvalue_rows,
                              Queue& queue) const {
  const int64_t dim = config_.dim;
  const Tensor qkv_w = weights.qkvo.value.Slice(0, 3 * dim);
  const Tensor o_w = weights.qkvo.value.Slice(3 * dim, dim);
  // The gated output is cheaper to compute again than to keep for every layer.
  kernels::HeadGate(saved.o, u, weights.gate.value, scratch.gated, queue);
  StackGrad(dout, scratch.gated, weights.qkvo.grad, 3 * dim, queue);
  kernels::MatMul(dout, o_w, scratch.d_o, {}, queue);
  kernels::HeadGateGrad(scratch.d_o, saved.o, u, weights.gate.value, scratch.d_o, du_head,
                        weights.gate.grad, queue);
  kernels::AttentionGrad(Attend(input, saved), scratch.d_o, scratch.delta, scratch.dq, scratch.dk,
                         scratch.dv, queue);
  kernels::QkvSplitNormRotaryGrad(Qkv(input, weights, saved), scratch.dq, scratch.dk, scratch.dv,
                                  scratch.dqkv, dvalue_rows, weights.scalars.grad, queue);
  StackGrad(scratch.dqkv, u, weights.qkvo.grad, 0, queue);
  kernels::MatMul(scratch.dqkv, qkv_w, du, {}, queue);
}

}  // namespace model
