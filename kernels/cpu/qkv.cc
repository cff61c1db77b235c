// Head split, QK norm, rotary, value mix and the sparse gate on the CPU. All of it moves memory:
// one read and one write of each tensor, in tasks of a block of tokens of one slot.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qkv.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gates-inl.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/qkv_blocks.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/token_blocks.h"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float InvRms(const BF16* x, int64_t size) {
  const float mean = Dot(x, x, size) / static_cast<float>(size);
  return 1.0f / std::sqrt(mean + kRmsEpsilon);
}

// y = rotary(x * inv_rms) of one head; returns inv_rms.
template <typename C>
float NormRotary(const BF16* HWY_RESTRICT x, const C* HWY_RESTRICT cos, const C* HWY_RESTRICT sin,
                 int64_t half, BF16* HWY_RESTRICT y) {
  const DF d;
  const float inv_rms = InvRms(x, 2 * half);
  const VF scale = hn::Set(d, inv_rms);
  ForEachVec(d, half, [&](int64_t i, int64_t n) {
    const VF x1 = hn::Mul(LoadAny(d, x + i, n), scale);
    const VF x2 = hn::Mul(LoadAny(d, x + half + i, n), scale);
    const VF c = LoadAny(d, cos + i, n);
    const VF s = LoadAny(d, sin + i, n);
    StoreAny(d, hn::MulAdd(x1, c, hn::Mul(x2, s)), y + i, n);
    StoreAny(d, hn::NegMulAdd(x1, s, hn::Mul(x2, c)), y + half + i, n);
  });
  return inv_rms;
}

// dx of one head from dn, the gradient of n = x * inv_rms:
//   dx = inv_rms * (dn - n * mean(n * dn)) * weight
// Returns the sum of n * dn.
template <typename G>
float NormGrad(const G* HWY_RESTRICT dn, const BF16* HWY_RESTRICT x, float inv_rms, float weight,
               int64_t size, BF16* HWY_RESTRICT dx) {
  const DF d;
  const float sum = Dot(x, dn, size) * inv_rms;
  const VF factor = hn::Set(d, sum / static_cast<float>(size) * inv_rms);
  const VF scale = hn::Set(d, inv_rms * weight);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF projected = hn::NegMulAdd(LoadAny(d, x + i, n), factor, LoadAny(d, dn + i, n));
    StoreAny(d, hn::Mul(projected, scale), dx + i, n);
  });
  return sum;
}

// dx of one head from dy, with dn = rotary' dy. `dn` is scratch of 2 * half.
template <typename C>
void NormRotaryGrad(const BF16* HWY_RESTRICT dy, const BF16* HWY_RESTRICT x, float inv_rms,
                    const C* HWY_RESTRICT cos, const C* HWY_RESTRICT sin, int64_t half,
                    float* HWY_RESTRICT dn, BF16* HWY_RESTRICT dx) {
  const DF d;
  ForEachVec(d, half, [&](int64_t i, int64_t n) {
    const VF dy1 = LoadAny(d, dy + i, n);
    const VF dy2 = LoadAny(d, dy + half + i, n);
    const VF c = LoadAny(d, cos + i, n);
    const VF s = LoadAny(d, sin + i, n);
    StoreAny(d, hn::NegMulAdd(dy2, s, hn::Mul(dy1, c)), dn + i, n);
    StoreAny(d, hn::MulAdd(dy1, s, hn::Mul(dy2, c)), dn + half + i, n);
  });
  NormGrad(dn, x, inv_rms, 1.0f, 2 * half, dx);
}

// y = a0 * v * inv_rms + a1 * value of one head; `value` may be null.
HWY_INLINE void MixNormed(const BF16* HWY_RESTRICT v, VF inv_rms, const BF16* HWY_RESTRICT value,
                          VF a0, VF a1, int64_t size, BF16* HWY_RESTRICT y) {
  const DF d;
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    VF mixed = hn::Mul(hn::Mul(LoadAny(d, v + i, n), inv_rms), a0);
    if (value != nullptr) mixed = hn::MulAdd(LoadAny(d, value + i, n), a1, mixed);
    StoreAny(d, mixed, y + i, n);
  });
}

template <typename C>
void SplitNormRotaryTyped(const QkvProblem& p, int64_t task) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  const VF a0 = hn::Set(d, p.lambda[0]);
  const VF a1 = hn::Set(d, p.lambda[1]);
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t row = block.slot * p.tokens + t;
    const BF16* qkv = p.qkv + row * 3 * p.dim;
    const C* cos = static_cast<const C*>(p.cos) + t * p.half;
    const C* sin = static_cast<const C*>(p.sin) + t * p.half;
    float* inv_rms = p.inv_rms + row * p.statistics;
    for (int64_t head = 0; head < 2 * p.heads; ++head) {
      BF16* y = head < p.heads ? p.q + row * p.dim + head * 2 * p.half
                               : p.k + row * p.dim + (head - p.heads) * 2 * p.half;
      inv_rms[head] = NormRotary(qkv + head * 2 * p.half, cos, sin, p.half, y);
    }
    const BF16* v = qkv + 2 * p.dim;
    const BF16* value = p.ValueRow(row);
    if (p.norm_value) {
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t at = head * 2 * p.half;
        float& statistic = inv_rms[2 * p.heads + head];
        statistic = InvRms(v + at, 2 * p.half);
        MixNormed(v + at, hn::Set(d, statistic), value == nullptr ? nullptr : value + at, a0, a1,
                  2 * p.half, p.v + row * p.dim + at);
      }
      continue;
    }
    ForEachVec(d, p.dim, [&](int64_t i, int64_t n) {
      VF mixed = hn::Mul(LoadAny(d, v + i, n), a0);
      if (value != nullptr) mixed = hn::MulAdd(LoadAny(d, value + i, n), a1, mixed);
      StoreAny(d, mixed, p.v + row * p.dim + i, n);
    });
  }
}

void SplitNormRotaryBlock(const QkvProblem& p, int64_t task) {
  p.f32_angles ? SplitNormRotaryTyped<float>(p, task) : SplitNormRotaryTyped<BF16>(p, task);
}

// sums[0..2) = the block's gradients of a0 and a1.
template <typename C>
void SplitNormRotaryGradTyped(const QkvProblem& p, const QkvGradPointers& grad, int64_t task,
                              double* sums) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  const VF a0 = hn::Set(d, p.lambda[0]);
  const VF a1 = hn::Set(d, p.lambda[1]);
  float* dn = ThreadScratch(0, 2 * p.half);
  sums[0] = sums[1] = 0;
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t row = block.slot * p.tokens + t;
    const BF16* qkv = p.qkv + row * 3 * p.dim;
    BF16* dqkv = grad.dqkv + row * 3 * p.dim;
    const C* cos = static_cast<const C*>(p.cos) + t * p.half;
    const C* sin = static_cast<const C*>(p.sin) + t * p.half;
    const float* inv_rms = p.inv_rms + row * p.statistics;
    for (int64_t head = 0; head < 2 * p.heads; ++head) {
      const int64_t at = head * 2 * p.half;
      const BF16* dy =
          head < p.heads ? grad.dq + row * p.dim + at : grad.dk + row * p.dim + at - p.dim;
      NormRotaryGrad(dy, qkv + at, inv_rms[head], cos, sin, p.half, dn, dqkv + at);
    }
    const BF16* dv = grad.dv + row * p.dim;
    if (p.norm_value) {
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t at = head * 2 * p.half;
        sums[0] += NormGrad(dv + at, qkv + 2 * p.dim + at, inv_rms[2 * p.heads + head], p.lambda[0],
                            2 * p.half, dqkv + 2 * p.dim + at);
      }
    } else {
      sums[0] += Dot(dv, qkv + 2 * p.dim, p.dim);
      ForEachVec(d, p.dim, [&](int64_t i, int64_t n) {
        StoreAny(d, hn::Mul(LoadAny(d, dv + i, n), a0), dqkv + 2 * p.dim + i, n);
      });
    }
    const BF16* value = p.ValueRow(row);
    if (value == nullptr) continue;
    sums[1] += Dot(dv, value, p.dim);
    BF16* drow = grad.dvalue_rows + row * p.dim;
    ForEachVec(d, p.dim, [&](int64_t i, int64_t n) {
      const VF sum = hn::MulAdd(LoadAny(d, dv + i, n), a1, LoadAny(d, drow + i, n));
      StoreAny(d, sum, drow + i, n);
    });
  }
}

void SplitNormRotaryGradBlock(const QkvProblem& p, const QkvGradPointers& grad, int64_t task,
                              double* sums) {
  p.f32_angles ? SplitNormRotaryGradTyped<float>(p, grad, task, sums)
               : SplitNormRotaryGradTyped<BF16>(p, grad, task, sums);
}

// Of the block's tokens.
void BlockGates(const GateProblem& p, const TokenBlock& block, float* HWY_RESTRICT gates) {
  const BF16* u = p.u + (block.slot * p.tokens + block.begin) * p.u_dim;
  Gates(p.gate_w, p.heads, p.k, u, p.u_dim, block.end - block.begin, gates);
}

void GateBlock(const GateProblem& p, BF16* y, int64_t task) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  float* gates = ThreadScratch(0, kTokenBlock * p.heads);
  BlockGates(p, block, gates);
  for (int64_t i = 0; i < (block.end - block.begin) * p.heads; ++i) {
    const int64_t at = ((block.slot * p.tokens + block.begin) * p.heads + i) * p.head_dim;
    const VF gate = hn::Set(d, gates[i]);
    ForEachVec(d, p.head_dim, [&](int64_t j, int64_t n) {
      StoreAny(d, hn::Mul(LoadAny(d, p.o + at + j, n), gate), y + at + j, n);
    });
  }
}

// dgate_w [heads * k] = the block's gradient.
void GateGradBlock(const GateProblem& p, const GateGradPointers& grad, int64_t task,
                   float* dgate_w) {
  const TokenBlock block(p.tokens, task);
  const DF d;
  float* gates = ThreadScratch(0, kTokenBlock * p.heads);
  BlockGates(p, block, gates);
  std::fill(dgate_w, dgate_w + p.heads * p.k, 0.0f);
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t row = block.slot * p.tokens + t;
    const BF16* u = p.u + row * p.u_dim;
    float* du = grad.du_head + row * p.k;
    std::fill(du, du + p.k, 0.0f);
    for (int64_t head = 0; head < p.heads; ++head) {
      const float gate = gates[(t - block.begin) * p.heads + head];
      const int64_t at = (row * p.heads + head) * p.head_dim;
      // Before do_ is written, which may be dy.
      const float slope = Dot(grad.dy + at, p.o + at, p.head_dim) * gate * (1.0f - gate);
      const VF factor = hn::Set(d, gate);
      ForEachVec(d, p.head_dim, [&](int64_t j, int64_t n) {
        StoreAny(d, hn::Mul(LoadAny(d, grad.dy + at + j, n), factor), grad.do_ + at + j, n);
      });
      const VF steep = hn::Set(d, slope);
      ForEachVec(d, p.k, [&](int64_t j, int64_t n) {
        const VF w = LoadAny(d, p.gate_w + head * p.k + j, n);
        StoreAny(d, hn::MulAdd(w, steep, LoadAny(d, du + j, n)), du + j, n);
        float* dw = dgate_w + head * p.k + j;
        StoreAny(d, hn::MulAdd(LoadAny(d, u + j, n), steep, LoadAny(d, dw, n)), dw, n);
      });
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(SplitNormRotaryBlock);
KERNELS_EXPORT(SplitNormRotaryGradBlock);
KERNELS_EXPORT(GateBlock);
KERNELS_EXPORT(GateGradBlock);

class CpuQkvOps : public QkvOps {
 public:
  explicit CpuQkvOps(ThreadPool& pool) : pool_(pool) {}

  void QkvSplitNormRotary(const QkvArgs& args, Queue&) const override {
    const QkvProblem problem(args);
    problem.CheckTokens();
    pool_.ParallelFor(TokenBlock::Count(problem.slots, problem.tokens), [&](int64_t task) {
      KERNELS_DISPATCH(SplitNormRotaryBlock)(problem, task);
    });
  }

  void QkvSplitNormRotaryGrad(const QkvArgs& forward, const QkvGradArgs& args,
                              Queue&) const override {
    const QkvProblem problem(forward);
    problem.CheckTokens();
    const QkvGradPointers grad = {args.dq.bf16(), args.dk.bf16(), args.dv.bf16(), args.dqkv.bf16(),
                                  args.dvalue_rows ? args.dvalue_rows.bf16() : nullptr};
    const int64_t blocks = TokenBlock::Count(problem.slots, problem.tokens);
    const int64_t lambdas = forward.value_table ? 2 : 1;
    std::vector<double> sums(blocks * lambdas);
    pool_.ParallelFor(blocks, [&](int64_t task) {
      double both[2];
      KERNELS_DISPATCH(SplitNormRotaryGradBlock)(problem, grad, task, both);
      std::copy(both, both + lambdas, sums.data() + task * lambdas);
    });
    AddToLeaves(sums, problem.slots, lambdas, args.dscalars, forward.value_lambda);
  }

  void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue&) const override {
    const GateProblem problem(o, u, gate_w);
    pool_.ParallelFor(TokenBlock::Count(problem.slots, problem.tokens), [&](int64_t task) {
      KERNELS_DISPATCH(GateBlock)(problem, y.bf16(), task);
    });
  }

  void HeadGateGrad(const HeadGateGradArgs& args, Queue&) const override {
    const GateProblem problem(args.o, args.u, args.gate_w);
    const GateGradPointers grad = {args.dy.bf16(), args.do_.bf16(), args.du_head.f32()};
    const int64_t blocks = TokenBlock::Count(problem.slots, problem.tokens);
    const int64_t weights = args.gate_w.size();
    std::vector<float> sums(blocks * weights);
    pool_.ParallelFor(blocks, [&](int64_t task) {
      KERNELS_DISPATCH(GateGradBlock)(problem, grad, task, sums.data() + task * weights);
    });
    AddToLeaves(sums, problem.slots, weights, args.dgate_w, 0);
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<QkvOps> MakeCpuQkvOps(ThreadPool& pool) {
  return std::make_unique<CpuQkvOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
