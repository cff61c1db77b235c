// The output head on the CPU. w is converted (or quantised) to f32 once a call; then each slot
// goes through in chunks of kChunkRows rows:
//
//   logits tile [rows, V] = x w^T      tasks of kVocabBlock columns
//   losses, and the tile becomes g     tasks of kLossRows rows
//   dx = g w                           tasks of kGradRows rows
//   dw += g^T x                        tasks of kVocabBlock rows of dw
//
// Quantised values are held as f32: they and their products are exact there, so fp8 differs
// from bf16 by its roundings alone. Sums over the vocabulary go by vector lanes: in a fixed order
// on one machine, which another instruction set may order differently.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/fp8-inl.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/cpu/simd-inl.h"
#include "third_party/absl_compat/check.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void Widen(const BF16* HWY_RESTRICT from, int64_t size, float* HWY_RESTRICT to) {
  const DF d;
  ForEachVec(d, size,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, from + i, n), to + i, n); });
}

void QuantiseE4M3(const BF16* HWY_RESTRICT from, float inv_scale, int64_t size,
                  float* HWY_RESTRICT to) {
  const DF d;
  const VF scale = hn::Set(d, inv_scale);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, RoundVecToE4M3(d, hn::Mul(LoadAny(d, from + i, n), scale)), to + i, n);
  });
}

void Narrow(const float* HWY_RESTRICT from, int64_t size, BF16* HWY_RESTRICT to) {
  const DF d;
  ForEachVec(d, size,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, from + i, n), to + i, n); });
}

// hn::Exp answers 0 for a NaN; a NaN has to reach the loss.
HWY_INLINE VF ExpOrNaN(DF d, VF v) { return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)); }

// z = cap * sigmoid(y / temperature) of the bf16-rounded logit y. With e = exp(-|y / temperature|)
// nothing overflows, and c (1 - c) = e / (1 + e)^2 does not cancel; at infinity it is 0.
struct Capped {
  VF z;
  VF slope;  // dz / dlogit
};
HWY_INLINE Capped Cap(DF d, VF logit, float cap, float temperature) {
  const VF one = hn::Set(d, 1.0f);
  const VF y = hn::Mul(RoundVecToBF16(d, logit), hn::Set(d, 1.0f / temperature));
  const VF e = ExpOrNaN(d, hn::Neg(hn::Abs(y)));
  const VF share = hn::Div(one, hn::Add(one, e));  // sigmoid(|y|)
  const VF rest = hn::Mul(e, share);               // sigmoid(-|y|)
  const VF c = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), rest, share);
  return {hn::Mul(hn::Set(d, cap), c),
          hn::Mul(hn::Set(d, cap / temperature), hn::Mul(share, rest))};
}

void CapRow(int64_t vocab, float cap, float temperature, float* HWY_RESTRICT row) {
  const DF d;
  ForEachVec(d, vocab, [&](int64_t i, int64_t n) {
    StoreAny(d, Cap(d, LoadAny(d, row + i, n), cap, temperature).z, row + i, n);
  });
}

// z into `z`, slopes over the logits in `row`; returns the maximum of z.
float CapRowWithSlopes(const HeadRow& p, float* HWY_RESTRICT row, float* HWY_RESTRICT z) {
  const DF d;
  VF top = hn::Zero(d);  // z is never below 0
  ForEachVec(d, p.vocab, [&](int64_t i, int64_t n) {
    const Capped capped = Cap(d, LoadAny(d, row + i, n), p.softcap, p.temperature);
    // The lanes past a row's end hold z(0), which must not count as a maximum.
    StoreAny(d, capped.z, z + i, n);
    StoreAny(d, capped.slope, row + i, n);
    top = hn::Max(top, LoadAny(d, z + i, n));
  });
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// z becomes exp(z - top); returns the sum.
float ExpRow(int64_t vocab, float top, float* HWY_RESTRICT z) {
  const DF d;
  const VF shift = hn::Set(d, top);
  VF sum = hn::Zero(d);
  ForEachVec(d, vocab, [&](int64_t i, int64_t n) {
    StoreAny(d, ExpOrNaN(d, hn::Sub(LoadAny(d, z + i, n), shift)), z + i, n);
    sum = hn::Add(sum, LoadAny(d, z + i, n));  // read back: zeros past the row's end
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The loss of one row of logits, which become the gradient g if p.grad. `z` is scratch [vocab].
float LossRow(const HeadRow& p, int64_t target, float* HWY_RESTRICT row, float* HWY_RESTRICT z) {
  const DF d;
  const float top = CapRowWithSlopes(p, row, z);
  const float target_z = z[target];
  const float sum = ExpRow(p.vocab, top, z);
  const float loss = top + std::log(sum) - target_z;
  if (!p.grad) return loss;

  const float inv_sum = 1.0f / sum;
  // The target's share of 1 goes first, in place of its exp.
  const float target_grad = (z[target] * inv_sum - 1.0f) * row[target];
  const VF scale = hn::Set(d, inv_sum);
  const VF inv_grad_scale = hn::Set(d, p.inv_grad_scale);
  ForEachVec(d, p.vocab, [&](int64_t i, int64_t n) {
    const VF share = hn::Mul(LoadAny(d, z + i, n), scale);
    VF g = RoundVecToBF16(d, hn::Mul(share, LoadAny(d, row + i, n)));
    if (p.fp8) g = RoundVecToE5M2(d, hn::Mul(g, inv_grad_scale));
    StoreAny(d, g, row + i, n);
  });
  const float rounded = RoundToBF16(target_grad);
  row[target] = p.fp8 ? RoundToE5M2(rounded * p.inv_grad_scale) : rounded;
  return loss;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

HWY_EXPORT(Widen);
HWY_EXPORT(QuantiseE4M3);
HWY_EXPORT(Narrow);
HWY_EXPORT(CapRow);
HWY_EXPORT(LossRow);

constexpr int64_t kChunkRows = 256;
constexpr int64_t kVocabBlock = 128;  // so that small vocabularies keep two cores busy, too
constexpr int64_t kLossRows = 8;
constexpr int64_t kGradRows = 32;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// The parts of args.workspace, all f32. The widened w takes 154 MB at the full size (V 50304,
// D 768); quantising it again for each chunk would save them for a few percent of the time.
struct Workspace {
  float* w;     // [V, D]
  float* x;     // [kChunkRows, D]
  float* tile;  // [kChunkRows, V]
};

int64_t WorkspaceFloats(int64_t vocab, int64_t dim) {
  return vocab * dim + kChunkRows * (dim + vocab);
}

class CpuHeadOps : public HeadOps {
 public:
  explicit CpuHeadOps(ThreadPool& pool) : pool_(pool) {}

  void HeadLoss(const HeadArgs& args, Tensor losses, Queue&) const override {
    Run(args, losses, Tensor(), Tensor());
  }

  void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                    Queue&) const override {
    Run(args, losses, dx, dw);
  }

  void HeadLogits(const HeadArgs& args, Tensor logits, Queue&) const override {
    const Workspace work = Split(args);
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    WidenW(args, work);
    for (int64_t begin = 0; begin < args.x.dim(1); begin += kChunkRows) {
      const int64_t rows = std::min(kChunkRows, args.x.dim(1) - begin);
      float* const out = logits.f32() + begin * vocab;
      Convert(args.x.bf16() + begin * dim, rows * dim, args.precision.fp8, args.precision.x_scale,
              work.x);
      Logits(args, work, rows, out);
      pool_.ParallelFor(rows, [&](int64_t row) {
        HWY_DYNAMIC_DISPATCH(CapRow)
        (vocab, args.softcap, args.softcap_temperature, out + row * vocab);
      });
    }
  }

  // The same for any number of slots and tokens.
  int64_t HeadWorkspaceBytes(int64_t, int64_t, int64_t vocab, int64_t dim) const override {
    return WorkspaceFloats(vocab, dim) * int64_t{sizeof(float)};
  }

 private:
  static Workspace Split(const HeadArgs& args) {
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    float* const start = static_cast<float*>(args.workspace.data());
    return {start, start + vocab * dim, start + (vocab + kChunkRows) * dim};
  }

  static void CheckTargets(const HeadArgs& args) {
    const int32_t* const targets = args.targets.i32();
    const int64_t tokens = args.x.dim(1);
    for (int64_t i = 0; i < args.targets.size(); ++i) {
      CHECK(targets[i] >= 0 && targets[i] < args.w.dim(0))
          << "head: the target of slot " << i / tokens << ", row " << i % tokens << " is "
          << targets[i] << ", outside the vocabulary of " << args.w.dim(0);
    }
  }

  static void Convert(const BF16* from, int64_t size, bool fp8, float scale, float* to) {
    if (fp8) {
      HWY_DYNAMIC_DISPATCH(QuantiseE4M3)(from, 1.0f / scale, size, to);
    } else {
      HWY_DYNAMIC_DISPATCH(Widen)(from, size, to);
    }
  }

  void WidenW(const HeadArgs& args, const Workspace& work) const {
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    pool_.ParallelFor(Blocks(vocab, kVocabBlock), [&](int64_t block) {
      const int64_t begin = block * kVocabBlock;
      Convert(args.w.bf16() + begin * dim, std::min(kVocabBlock, vocab - begin) * dim,
              args.precision.fp8, args.precision.w_scale, work.w + begin * dim);
    });
  }

  // f32 products, not yet rounded to bf16: out [rows, V].
  void Logits(const HeadArgs& args, const Workspace& work, int64_t rows, float* out) const {
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.x_scale * precision.w_scale : 1.0f;
    pool_.ParallelFor(Blocks(vocab, kVocabBlock), [&](int64_t block) {
      const int64_t begin = block * kVocabBlock;
      Sgemm(false, true, rows, std::min(kVocabBlock, vocab - begin), dim, alpha, work.x, dim,
            work.w + begin * dim, dim, 0.0f, out + begin, vocab);
    });
  }

  void Losses(const HeadArgs& args, bool grad, const Workspace& work, int64_t rows,
              const int32_t* targets, float* losses) const {
    const HeadPrecision& precision = args.precision;
    const HeadRow row = {.vocab = args.w.dim(0),
                         .softcap = args.softcap,
                         .temperature = args.softcap_temperature,
                         .grad = grad,
                         .fp8 = precision.fp8,
                         .inv_grad_scale = grad && precision.fp8 ? 1.0f / precision.grad_scale : 0};
    pool_.ParallelFor(Blocks(rows, kLossRows), [&](int64_t block) {
      float* const z = ThreadScratch(0, row.vocab);
      const int64_t end = std::min(rows, (block + 1) * kLossRows);
      for (int64_t i = block * kLossRows; i < end; ++i) {
        losses[i] = HWY_DYNAMIC_DISPATCH(LossRow)(row, targets[i], work.tile + i * row.vocab, z);
      }
    });
  }

  void GradX(const HeadArgs& args, const Workspace& work, int64_t rows, BF16* dx) const {
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.grad_scale * precision.w_scale : 1.0f;
    pool_.ParallelFor(Blocks(rows, kGradRows), [&](int64_t block) {
      const int64_t begin = block * kGradRows;
      const int64_t count = std::min(kGradRows, rows - begin);
      float* const sums = ThreadScratch(0, kGradRows * dim);
      Sgemm(false, false, count, dim, vocab, alpha, work.tile + begin * vocab, vocab, work.w, dim,
            0.0f, sums, dim);
      HWY_DYNAMIC_DISPATCH(Narrow)(sums, count * dim, dx + begin * dim);
    });
  }

  void GradW(const HeadArgs& args, const Workspace& work, int64_t rows, float* dw) const {
    const int64_t vocab = args.w.dim(0);
    const int64_t dim = args.w.dim(1);
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.x_scale * precision.grad_scale : 1.0f;
    pool_.ParallelFor(Blocks(vocab, kVocabBlock), [&](int64_t block) {
      const int64_t begin = block * kVocabBlock;
      Sgemm(true, false, std::min(kVocabBlock, vocab - begin), dim, rows, alpha, work.tile + begin,
            vocab, work.x, dim, 1.0f, dw + begin * dim, dim);
    });
  }

  // Without dx and dw: losses only. Chunks add to their leaf one by one, slot after slot: one leaf
  // for all slots gets the bits that one call per slot would give it.
  void Run(const HeadArgs& args, const Tensor& losses, const Tensor& dx, const Tensor& dw) const {
    CheckTargets(args);
    const Workspace work = Split(args);
    const int64_t tokens = args.x.dim(1);
    const int64_t dim = args.w.dim(1);
    WidenW(args, work);
    for (int64_t slot = 0; slot < args.x.dim(0); ++slot) {
      for (int64_t begin = 0; begin < tokens; begin += kChunkRows) {
        const int64_t rows = std::min(kChunkRows, tokens - begin);
        const int64_t first = slot * tokens + begin;
        Convert(args.x.bf16() + first * dim, rows * dim, args.precision.fp8, args.precision.x_scale,
                work.x);
        Logits(args, work, rows, work.tile);
        Losses(args, !dx.empty(), work, rows, args.targets.i32() + first, losses.f32() + first);
        if (dx.empty()) continue;
        GradX(args, work, rows, dx.bf16() + first * dim);
        GradW(args, work, rows, dw.At(dw.dim(0) == 1 ? 0 : slot).f32());
      }
    }
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<HeadOps> MakeCpuHeadOps(ThreadPool& pool) {
  return std::make_unique<CpuHeadOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
