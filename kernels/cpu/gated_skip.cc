// The gated skip connection on the CPU, in tasks of a block of tokens of one slot.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_skip.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/gated.h"
#include "kernels/cpu/gated_blocks.h"
#include "kernels/cpu/gates-inl.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/token_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// sigmoid(gate . x0_t[0..n)) of the block's tokens.
const float* SkipGates(const GatedSkipProblem& p, const TokenBlock& block) {
  float* gates = ThreadScratch(0, kTokenBlock);
  const BF16* x0 = p.x0 + (block.slot * p.tokens + block.begin) * p.dim;
  Gates(p.gate, 1, p.gate_size, x0, p.dim, block.end - block.begin, gates);
  return gates;
}

void GatedSkipBlock(const GatedSkipProblem& p, const BF16* x, BF16* y, int64_t task) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  const float* gates = SkipGates(p, block);
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t at = (block.slot * p.tokens + t) * p.dim;
    const VF s = hn::Set(d, p.weight * 2.0f * gates[t - block.begin]);
    ForEachVec(d, p.dim, [&](int64_t i, int64_t n) {
      const VF sum = hn::MulAdd(LoadAny(d, p.saved + at + i, n), s, LoadAny(d, x + at + i, n));
      StoreAny(d, sum, y + at + i, n);
    });
  }
}

// dgate [n] and *dscalar = the block's gradients.
void GatedSkipGradBlock(const GatedSkipProblem& p, const GatedSkipGradPointers& grad, int64_t task,
                        float* dgate, double* dscalar) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  const float* gates = SkipGates(p, block);
  std::fill(dgate, dgate + p.gate_size, 0.0f);
  double weighted = 0;
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t at = (block.slot * p.tokens + t) * p.dim;
    const float gate = gates[t - block.begin];
    const VF s = hn::Set(d, p.weight * 2.0f * gate);
    const float ds = Dot(grad.dy + at, p.saved + at, p.dim);
    ForEachVec(d, p.dim, [&](int64_t i, int64_t n) {
      StoreAny(d, hn::Mul(LoadAny(d, grad.dy + at + i, n), s), grad.dsaved + at + i, n);
    });
    weighted += ds * 2.0f * gate;
    const VF slope = hn::Set(d, ds * p.weight * 2.0f * gate * (1.0f - gate));
    ForEachVec(d, p.gate_size, [&](int64_t i, int64_t n) {
      const VF dw = hn::MulAdd(LoadAny(d, p.x0 + at + i, n), slope, LoadAny(d, dgate + i, n));
      StoreAny(d, dw, dgate + i, n);
      BF16* dx0 = grad.dx0 + at + i;
      StoreAny(d, hn::MulAdd(LoadAny(d, p.gate + i, n), slope, LoadAny(d, dx0, n)), dx0, n);
    });
  }
  *dscalar = weighted * p.weight * (1.0f - p.weight);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {
KERNELS_EXPORT(GatedSkipBlock);
KERNELS_EXPORT(GatedSkipGradBlock);
}  // namespace

namespace cpu {

void GatedSkip(const GatedSkipArgs& args, ThreadPool& pool) {
  const GatedSkipProblem problem(args);
  const BF16* x = args.x.bf16();
  BF16* y = args.y.bf16();
  pool.ParallelFor(TokenBlock::Count(problem.slots, problem.tokens), [&](int64_t task) {
    KERNELS_DISPATCH(GatedSkipBlock)(problem, x, y, task);
  });
}

void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, ThreadPool& pool) {
  const GatedSkipProblem problem(forward);
  const GatedSkipGradPointers pointers = {grad.dy.bf16(), grad.dsaved.bf16(), grad.dx0.bf16()};
  const int64_t blocks = TokenBlock::Count(problem.slots, problem.tokens);
  std::vector<float> dgate(blocks * problem.gate_size);
  std::vector<double> dscalar(blocks);
  pool.ParallelFor(blocks, [&](int64_t task) {
    KERNELS_DISPATCH(GatedSkipGradBlock)
    (problem, pointers, task, dgate.data() + task * problem.gate_size, dscalar.data() + task);
  });
  AddToLeaves(dgate, problem.slots, problem.gate_size, grad.dgate, 0);
  AddToLeaves(dscalar, problem.slots, 1, grad.dscalars, forward.skip);
}

}  // namespace cpu
}  // namespace kernels
#endif  // HWY_ONCE
