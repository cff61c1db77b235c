// QK norm, interleaved rotary, key offset and the gated value embedding on the CPU: one read and
// one write of each tensor, in tasks of a block of tokens of one slot.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_qkv.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/gated.h"
#include "kernels/cpu/gated_blocks.h"
#include "kernels/cpu/gates-inl.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/token_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The rotated key of token t goes to its own row but for quarters 1 and 3, which go to the next
// one. That row may be another task's, which does not write these quarters.
void ScatterKey(const GatedQkvProblem& p, int64_t t, const BF16* HWY_RESTRICT rotated, BF16* own) {
  const int64_t quarter = p.head_dim / 4;
  for (int64_t part = 0; part < 4; ++part) {
    const BF16* from = rotated + part * quarter;
    const auto copy = [&](BF16* row) {
      std::memcpy(row + part * quarter, from, quarter * sizeof(BF16));
    };
    const bool moves = part % 2 == 1;
    if (!moves || t == 0) copy(own);
    if (moves && t + 1 < p.tokens) copy(own + p.dim);
  }
}

// v + gamma * value of one token, or v without a table. `gates` has the heads' sigmoids.
void MixValues(const GatedQkvProblem& p, int64_t row, const float* gates, BF16* HWY_RESTRICT y) {
  const BF16* v = p.qkv + (row * 3 + 2) * p.dim;
  if (p.value_table == nullptr) {
    std::memcpy(y, v, p.dim * sizeof(BF16));
    return;
  }
  const DF d;
  for (int64_t head = 0; head < p.heads; ++head) {
    const int64_t at = head * p.head_dim;
    const BF16* value = p.ValueRow(row) + at;
    const VF gamma = hn::Set(d, 2.0f * gates[head]);
    ForEachVec(d, p.head_dim, [&](int64_t i, int64_t n) {
      const VF sum = hn::MulAdd(LoadAny(d, value + i, n), gamma, LoadAny(d, v + at + i, n));
      StoreAny(d, sum, y + at + i, n);
    });
  }
}

// The heads' sigmoids of the block's tokens; null without a table.
const float* ValueGates(const GatedQkvProblem& p, const TokenBlock& block) {
  if (p.value_table == nullptr) return nullptr;
  float* gates = ThreadScratch(0, kTokenBlock * p.heads);
  const BF16* u = p.u + (block.slot * p.tokens + block.begin) * p.dim;
  Gates(p.value_gate, p.heads, p.gate_size, u, p.dim, block.end - block.begin, gates);
  return gates;
}

const float* GatesOf(const GatedQkvProblem& p, const float* block_gates, int64_t token_of_block) {
  return block_gates == nullptr ? nullptr : block_gates + token_of_block * p.heads;
}

void GatedQkvBlock(const GatedQkvProblem& p, const GatedQkvOutputs& out, int64_t task) {
  const TokenBlock block(p.tokens, task);
  const float* gates = ValueGates(p, block);
  BF16* rotated = reinterpret_cast<BF16*>(ThreadScratch(1, p.head_dim));
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t row = block.slot * p.tokens + t;
    for (int64_t head = 0; head < 2 * p.heads; ++head) {
      const bool is_key = head >= p.heads;
      const int64_t in_part = head % p.heads;
      const int64_t angle = p.Angle(t, in_part);
      BF16* y = (is_key ? out.k : out.q) + row * p.dim + in_part * p.head_dim;
      const bool scatter = is_key && p.key_offset;
      p.inv_rms[row * 2 * p.heads + head] =
          NormRotaryPairs(p.qkv + row * 3 * p.dim + head * p.head_dim, p.cos + angle, p.sin + angle,
                          p.head_dim, scatter ? rotated : y);
      if (scatter) ScatterKey(p, t, rotated, y);
    }
    MixValues(p, row, GatesOf(p, gates, t - block.begin), out.v + row * p.dim);
  }
}

// The gradient of v, of the token's row of the table and of the gate: `dgate` [heads * n] and the
// row of du_head are added to.
void MixValuesGrad(const GatedQkvProblem& p, const GatedQkvGradPointers& grad, int64_t row,
                   const float* gates, float* HWY_RESTRICT dgate) {
  const BF16* dv = grad.dv + row * p.dim;
  std::memcpy(grad.dqkv + (row * 3 + 2) * p.dim, dv, p.dim * sizeof(BF16));
  if (p.value_table == nullptr) return;
  const DF d;
  const BF16* u = p.u + row * p.dim;
  BF16* drow = grad.dvalue_rows + row * p.dim;
  float* du = grad.du_head + row * p.gate_size;
  for (int64_t head = 0; head < p.heads; ++head) {
    const int64_t at = head * p.head_dim;
    const float gate = gates[head];
    const VF gamma = hn::Set(d, 2.0f * gate);
    const float dgamma = Dot(dv + at, p.ValueRow(row) + at, p.head_dim);
    ForEachVec(d, p.head_dim, [&](int64_t i, int64_t n) {
      const VF old = LoadAny(d, drow + at + i, n);
      StoreAny(d, hn::MulAdd(LoadAny(d, dv + at + i, n), gamma, old), drow + at + i, n);
    });
    const VF slope = hn::Set(d, dgamma * 2.0f * gate * (1.0f - gate));
    const BF16* weights = p.value_gate + head * p.gate_size;
    ForEachVec(d, p.gate_size, [&](int64_t i, int64_t n) {
      const VF w = LoadAny(d, weights + i, n);
      StoreAny(d, hn::MulAdd(w, slope, LoadAny(d, du + i, n)), du + i, n);
      float* dw = dgate + head * p.gate_size + i;
      StoreAny(d, hn::MulAdd(LoadAny(d, u + i, n), slope, LoadAny(d, dw, n)), dw, n);
    });
  }
}

// Where the gradient of a rotated key of token t comes from; `own` is its place in dk.
HeadGradSource KeyGradSource(const GatedQkvProblem& p, int64_t t, const BF16* own) {
  if (!p.key_offset) return {own, own, nullptr};
  return {own, t + 1 < p.tokens ? own + p.dim : nullptr, t == 0 ? own : nullptr};
}

// dgate [heads * n] = the block's gradient of value_gate; not there without a table.
void GatedQkvGradBlock(const GatedQkvProblem& p, const GatedQkvGradPointers& grad, int64_t task,
                       float* dgate) {
  const TokenBlock block(p.tokens, task);
  const float* gates = ValueGates(p, block);
  float* dn = ThreadScratch(1, p.head_dim);
  std::fill(dgate, dgate + p.heads * p.gate_size, 0.0f);
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t row = block.slot * p.tokens + t;
    for (int64_t head = 0; head < 2 * p.heads; ++head) {
      const int64_t in_part = head % p.heads;
      const int64_t angle = p.Angle(t, in_part);
      const int64_t in_row = in_part * p.head_dim, in_qkv = row * 3 * p.dim + head * p.head_dim;
      const BF16* dq = grad.dq + row * p.dim + in_row;
      const HeadGradSource from = head < p.heads
                                      ? HeadGradSource{dq, dq, nullptr}
                                      : KeyGradSource(p, t, grad.dk + row * p.dim + in_row);
      NormRotaryPairsGrad(from, p.qkv + in_qkv, p.inv_rms[row * 2 * p.heads + head], p.cos + angle,
                          p.sin + angle, p.head_dim, dn, grad.dqkv + in_qkv);
    }
    MixValuesGrad(p, grad, row, GatesOf(p, gates, t - block.begin), dgate);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {
KERNELS_EXPORT(GatedQkvBlock);
KERNELS_EXPORT(GatedQkvGradBlock);
}  // namespace

namespace cpu {

void GatedQkv(const GatedQkvArgs& args, ThreadPool& pool) {
  const GatedQkvProblem problem(args);
  problem.CheckTokens();
  const GatedQkvOutputs out = {args.q.bf16(), args.k.bf16(), args.v.bf16()};
  pool.ParallelFor(TokenBlock::Count(problem.slots, problem.tokens), [&](int64_t task) {
    KERNELS_DISPATCH(GatedQkvBlock)(problem, out, task);
  });
}

void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, ThreadPool& pool) {
  const GatedQkvProblem problem(forward);
  problem.CheckTokens();
  const bool table = !forward.value_table.empty();
  const GatedQkvGradPointers pointers = {grad.dq.bf16(),
                                         grad.dk.bf16(),
                                         grad.dv.bf16(),
                                         grad.dqkv.bf16(),
                                         table ? grad.dvalue_rows.bf16() : nullptr,
                                         table ? grad.du_head.f32() : nullptr};
  const int64_t blocks = TokenBlock::Count(problem.slots, problem.tokens);
  const int64_t size = problem.heads * problem.gate_size;
  std::vector<float> sums(blocks * size);
  pool.ParallelFor(blocks, [&](int64_t task) {
    KERNELS_DISPATCH(GatedQkvGradBlock)
    (problem, pointers, task, sums.data() + task * size);
  });
  if (table) AddToLeaves(sums, problem.slots, size, grad.dvalue_gate, 0);
}

}  // namespace cpu
}  // namespace kernels
#endif  // HWY_ONCE
