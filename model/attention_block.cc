#include "model/attention_block.h"

#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "model/kv_cache.h"

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
  const int normed = config.value_norm ? 3 : 2;  // of q, k, v
  memory.Add(&inv_rms, "attn inv_rms", DType::kF32, {slots, tokens, normed * config.heads});
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
  args.cos = Positions(input.cos, input);
  args.sin = Positions(input.sin, input);
  args.tokens = input.tokens;
  args.value_table = weights.value_table.value;
  args.scalars = weights.scalars.value;
  args.value_lambda = value_lambda_;
  args.q = saved.q;
  args.k = saved.k;
  args.v = saved.v;
  args.inv_rms = saved.inv_rms;
  args.norm_value = config_.value_norm;
  return args;
}

kernels::GatedQkvArgs AttentionBlock::GatedQkv(const PassInput& input,
                                               const AttentionWeights& weights, Tensor u,
                                               const AttentionActivations& saved) const {
  kernels::GatedQkvArgs args;
  args.qkv = saved.qkv;
  args.heads = static_cast<int>(config_.heads);
  args.paired = layer_.paired_heads;
  args.key_offset = layer_.key_offset;
  args.cos = Positions(input.cos, input);
  args.sin = Positions(input.sin, input);
  args.tokens = input.tokens;
  args.value_table = weights.value_table.value;
  args.u = u;
  args.value_gate = weights.value_gate.value;
  args.q = saved.q;
  args.k = saved.k;
  args.v = saved.v;
  args.inv_rms = saved.inv_rms;
  return args;
}

Tensor AttentionBlock::Positions(Tensor table, const PassInput& input) const {
  const int64_t first = Sequences() * input.begin;
  return table.Slice(first, table.dim(0) - first);
}

Tensor AttentionBlock::Rows(Tensor x) const {
  return layer_.paired_heads ? x.Reshape({x.dim(0), 2 * x.dim(1), x.dim(2) / 2}) : x;
}

kernels::AttentionArgs AttentionBlock::Attend(const PassInput& input,
                                              const AttentionActivations& saved) const {
  kernels::AttentionArgs args;
  args.q = Rows(saved.q);
  args.k = Rows(input.cache != nullptr ? input.cache->k(index_) : saved.k);
  args.v = Rows(input.cache != nullptr ? input.cache->v(index_) : saved.v);
  args.boundaries = layer_.paired_heads ? input.paired_boundaries : input.boundaries;
  args.heads = static_cast<int>(config_.heads) / Sequences();
  args.window_tokens = layer_.long_window ? input.long_window_tokens : input.short_window_tokens;
  args.window_block = config_.window_block;
  args.scale = input.attention_scale;
  args.o = Rows(saved.o);
  args.lse = saved.lse.Reshape({saved.lse.dim(0), args.heads, args.q.dim(1)});
  return args;
}

void AttentionBlock::Forward(const PassInput& input, const AttentionWeights& weights, Tensor u,
                             Tensor residual, AttentionActivations& saved,
                             AttentionScratch& scratch, Tensor out, Queue& queue) const {
  const int64_t dim = config_.dim;
  const Tensor qkv_w = weights.qkvo.value.Slice(0, 3 * dim);
  const Tensor o_w = weights.qkvo.value.Slice(3 * dim, dim);
  kernels::MatMul(u, qkv_w, saved.qkv, {.trans_b = true}, queue);
  if (config_.rotary_pairs == RotaryPairs::kNeighbours) {
    kernels::GatedQkv(GatedQkv(input, weights, u, saved), queue);
  } else {
    kernels::QkvSplitNormRotary(Qkv(input, weights, saved), queue);
  }
  Attention(input, saved, queue);
  const Tensor heads = Gated(weights, u, saved, scratch, queue);
  kernels::MatMul(heads, o_w, out, {.trans_b = true, .beta = 1.0f}, residual, queue);
}

void AttentionBlock::Attention(const PassInput& input, const AttentionActivations& saved,
                               Queue& queue) const {
  if (input.cache == nullptr) return kernels::Attention(Attend(input, saved), queue);
  const int64_t from = input.kept_from, count = saved.k.dim(1) - from;
  const auto keep = [&](const Tensor& rows, const Tensor& kept) {
    kernels::Copy(rows.At(0).Slice(from, count), kept.At(0).Slice(input.begin + from, count),
                  queue);
  };
  keep(saved.k, input.cache->k(index_));
  keep(saved.v, input.cache->v(index_));
  kernels::CachedAttention(Attend(input, saved), Sequences() * input.begin, queue);
}

// What the O product reads: in backward the gated output is cheaper to compute again than to keep
// for every layer.
Tensor AttentionBlock::Gated(const AttentionWeights& weights, Tensor u,
                             const AttentionActivations& saved, AttentionScratch& scratch,
                             Queue& queue) const {
  if (!weights.gate.value) return saved.o;
  kernels::HeadGate(saved.o, u, weights.gate.value, scratch.gated, queue);
  return scratch.gated;
}

void AttentionBlock::Backward(const PassInput& input, const AttentionWeights& weights, Tensor u,
                              const AttentionActivations& saved, AttentionScratch& scratch,
                              Tensor dout, Tensor du, Tensor du_head, Tensor dvalue_rows,
                              Queue& queue) const {
  const int64_t dim = config_.dim;
  const Tensor qkv_w = weights.qkvo.value.Slice(0, 3 * dim);
  const Tensor o_w = weights.qkvo.value.Slice(3 * dim, dim);
  StackGrad(dout, Gated(weights, u, saved, scratch, queue), weights.qkvo.grad, 3 * dim, queue);
  kernels::MatMul(dout, o_w, scratch.d_o, {}, queue);
  if (weights.gate.value) {
    kernels::HeadGateGrad({.dy = scratch.d_o,
                           .o = saved.o,
                           .u = u,
                           .gate_w = weights.gate.value,
                           .do_ = scratch.d_o,
                           .du_head = du_head,
                           .dgate_w = weights.gate.grad},
                          queue);
  } else if (weights.value_gate.value) {
    kernels::FillZero(du_head, queue);  // which the value gate adds to
  }
  const kernels::AttentionArgs attention = Attend(input, saved);
  kernels::AttentionGrad(attention,
                         {.do_ = Rows(scratch.d_o),
                          .delta = scratch.delta.Reshape(attention.lse.dims()),
                          .dq = Rows(scratch.dq),
                          .dk = Rows(scratch.dk),
                          .dv = Rows(scratch.dv)},
                         queue);
  BackwardQkv(input, weights, u, saved, scratch, du_head, dvalue_rows, queue);
  StackGrad(scratch.dqkv, u, weights.qkvo.grad, 0, queue);
  kernels::MatMul(scratch.dqkv, qkv_w, du, {}, queue);
}

void AttentionBlock::BackwardQkv(const PassInput& input, const AttentionWeights& weights, Tensor u,
                                 const AttentionActivations& saved, AttentionScratch& scratch,
                                 Tensor du_head, Tensor dvalue_rows, Queue& queue) const {
  if (config_.rotary_pairs == RotaryPairs::kHalves) {
    kernels::QkvSplitNormRotaryGrad(Qkv(input, weights, saved),
                                    {.dq = scratch.dq,
                                     .dk = scratch.dk,
                                     .dv = scratch.dv,
                                     .dqkv = scratch.dqkv,
                                     .dvalue_rows = dvalue_rows,
                                     .dscalars = weights.scalars.grad},
                                    queue);
    return;
  }
  kernels::GatedQkvGradArgs grad;
  grad.dq = scratch.dq;
  grad.dk = scratch.dk;
  grad.dv = scratch.dv;
  grad.dqkv = scratch.dqkv;
  if (weights.value_table.value) {
    grad.dvalue_rows = dvalue_rows;
    grad.du_head = du_head;  // on top of what is there
    grad.dvalue_gate = weights.value_gate.grad;
  }
  kernels::GatedQkvGrad(GatedQkv(input, weights, u, saved), grad, queue);
}

}  // namespace model
