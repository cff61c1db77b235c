// Optimizer ops on the CPU. All are bound by memory; the arithmetic between a load and a store is
// f32. Elementwise ops run the tail of a range through the same vector code as its body, so bits
// do not depend on how a range is cut.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/adam.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gram_norm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/split_matrix.h"
#include "kernels/cpu/twin_rail.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// G: what g is rounded to.
template <typename G, typename M>
void MomentumTyped(const MomentumArgs& args, int64_t begin, int64_t size) {
  const DF d;
  const float* HWY_RESTRICT g = args.g.f32() + begin;
  M* HWY_RESTRICT m = static_cast<M*>(args.m.data()) + begin;
  BF16* HWY_RESTRICT u = args.u.bf16() + begin;
  const float mu = args.mu.f32()[0];
  const VF keep = hn::Set(d, mu);
  const VF rest = hn::Set(d, 1.0f - mu);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF grad = RoundLike(d, LoadAny(d, g + i, n), static_cast<const G*>(nullptr));
    const VF old_m = LoadAny(d, m + i, n);
    const VF new_m = hn::MulAdd(rest, hn::Sub(grad, old_m), old_m);
    StoreAny(d, new_m, m + i, n);
    StoreAny(d, hn::MulAdd(keep, hn::Sub(new_m, grad), grad), u + i, n);
  });
}

void MomentumRange(const MomentumArgs& args, int64_t begin, int64_t size) {
  const bool m_f32 = args.m.dtype() == DType::kF32;
  if (args.gradient == DType::kF32) {
    m_f32 ? MomentumTyped<float, float>(args, begin, size)
          : MomentumTyped<float, BF16>(args, begin, size);
  } else {
    m_f32 ? MomentumTyped<BF16, float>(args, begin, size)
          : MomentumTyped<BF16, BF16>(args, begin, size);
  }
}

float SumSquares(const BF16* HWY_RESTRICT u, int64_t size) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF v = LoadAny(d, u + i, n);
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// No HWY_RESTRICT: x may be u.
void DivideBy(const BF16* u, float divisor, int64_t size, BF16* x) {
  const DF d;
  const VF by = hn::Set(d, divisor);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Div(LoadAny(d, u + i, n), by), x + i, n);
  });
}

// sums[j] = the sum over the rows of o[row, j]^2. Rows in order, for each column by itself.
void ColumnSquares(const BF16* HWY_RESTRICT o, int64_t rows, int64_t cols,
                   float* HWY_RESTRICT sums) {
  const DF d;
  std::fill_n(sums, cols, 0.0f);
  for (int64_t row = 0; row < rows; ++row, o += cols) {
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      const VF v = LoadAny(d, o + i, n);
      StoreAny(d, hn::MulAdd(v, v, LoadAny(d, sums + i, n)), sums + i, n);
    });
  }
}

// p[row, j] = o[row, j] factor[j]. No HWY_RESTRICT: p may be o.
void MultiplyColumns(const BF16* o, const float* HWY_RESTRICT factor, int64_t rows, int64_t cols,
                     BF16* p) {
  const DF d;
  for (int64_t row = 0; row < rows; ++row, o += cols, p += cols) {
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      StoreAny(d, hn::Mul(LoadAny(d, o + i, n), LoadAny(d, factor + i, n)), p + i, n);
    });
  }
}

// p[row, j] = o[row, j] factor[row].
void MultiplyRows(const BF16* o, const float* HWY_RESTRICT factor, int64_t rows, int64_t cols,
                  BF16* p) {
  const DF d;
  for (int64_t row = 0; row < rows; ++row, o += cols, p += cols) {
    const VF by = hn::Set(d, factor[row]);
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      StoreAny(d, hn::Mul(LoadAny(d, o + i, n), by), p + i, n);
    });
  }
}

template <typename P>
void MatrixTyped(P* HWY_RESTRICT p, const BF16* HWY_RESTRICT o, float lr, float decay,
                 int64_t size) {
  const DF d;
  const VF rate = hn::Set(d, lr);
  const VF keep = hn::Set(d, decay);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF decayed = hn::Mul(LoadAny(d, p + i, n), keep);
    StoreAny(d, hn::NegMulAdd(rate, LoadAny(d, o + i, n), decayed), p + i, n);
  });
}

void MatrixRange(const Tensor& p, const Tensor& o, float lr, float decay, int64_t begin,
                 int64_t size) {
  if (p.dtype() == DType::kF32) {
    MatrixTyped(p.f32() + begin, o.bf16() + begin, lr, decay, size);
  } else {
    MatrixTyped(p.bf16() + begin, o.bf16() + begin, lr, decay, size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(MomentumRange);
KERNELS_EXPORT(SumSquares);
KERNELS_EXPORT(DivideBy);
KERNELS_EXPORT(ColumnSquares);
KERNELS_EXPORT(MultiplyColumns);
KERNELS_EXPORT(MultiplyRows);
KERNELS_EXPORT(MatrixRange);

// Elements of one task: 64 KiB to 256 KiB of memory, far more work than waking a thread.
constexpr int64_t kBlock = 16384;

bool IsOff(const Tensor& guard) { return !guard.empty() && guard.i32()[0] == 0; }

int64_t Blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }

// Rows of one task of NormalizeBySecondMoment.
constexpr int64_t kBlockRows = 64;

float Get(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kF32 ? t.f32()[i] : ToFloat(t.bf16()[i]);
}

void Put(const Tensor& t, int64_t i, float value) {
  if (t.dtype() == DType::kF32) {
    t.f32()[i] = value;
  } else {
    t.bf16()[i] = ToBF16(value);
  }
}

// For one matrix: the new w from the sums of squares, which turn into what each column (or row)
// is multiplied by. The norm of P follows from the same sums, before P is there.
void UpdateSecondMoment(const SecondMomentArgs& args, int64_t matrix, float* sums) {
  const int64_t count = args.w.dim(1);
  const float averaged = static_cast<float>(args.o.dim(args.per_row ? 2 : 1));
  const float rest = 1.0f - args.beta2;
  float squares = 0, scaled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = matrix * count + i;
    const float old = Get(args.w, at);
    const float now = old + rest * (sums[i] / averaged - old);
    Put(args.w, at, now);
    const float inverse = 1.0f / std::max(now, args.floor);
    squares += sums[i];
    scaled += sums[i] * inverse;
    sums[i] = std::sqrt(inverse);
  }
  const float ratio = std::sqrt(squares) / std::max(std::sqrt(scaled), 1e-10f);
  for (int64_t i = 0; i < count; ++i) sums[i] *= ratio;
}

class CpuOptimizerOps : public OptimizerOps {
 public:
  explicit CpuOptimizerOps(ThreadPool& pool) : pool_(pool) {}

  void AdamUpdate(const AdamArgs& args, Queue&) const override {
    if (!IsOff(args.guard)) cpu::AdamUpdate(args, pool_);
  }

  void AdamFlat(const AdamFlatArgs& args, Queue&) const override {
    if (!IsOff(args.guard)) cpu::AdamFlat(args, pool_);
  }

  void MomentumUpdate(const MomentumArgs& args, Queue&) const override {
    if (IsOff(args.guard)) return;
    const int64_t size = args.g.size();
    pool_.ParallelFor(Blocks(size), [&](int64_t block) {
      const int64_t begin = block * kBlock;
      KERNELS_DISPATCH(MomentumRange)(args, begin, std::min(kBlock, size - begin));
    });
  }

  // One partial sum a block, added in block order. (The lanes of the machine's vectors are part
  // of the order as well: another instruction set may round the norm differently.)
  void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x, Queue&) const override {
    const int64_t size = u.dim(1) * u.dim(2);
    const int64_t blocks = Blocks(size);
    std::vector<float> partial(u.dim(0) * blocks);
    pool_.ParallelFor(u.dim(0) * blocks, [&](int64_t task) {
      const int64_t begin = task % blocks * kBlock;
      partial[task] = KERNELS_DISPATCH(SumSquares)(u.bf16() + task / blocks * size + begin,
                                                   std::min(kBlock, size - begin));
    });
    pool_.ParallelFor(u.dim(0) * blocks, [&](int64_t task) {
      const int64_t matrix = task / blocks;
      float sum = 0;
      for (int64_t i = 0; i < blocks; ++i) sum += partial[matrix * blocks + i];
      const int64_t begin = task % blocks * kBlock;
      const int64_t offset = matrix * size + begin;
      KERNELS_DISPATCH(DivideBy)
      (u.bf16() + offset, scale * std::sqrt(sum) + eps, std::min(kBlock, size - begin),
       x.bf16() + offset);
    });
  }

  void TwinRailUpdate(const TwinRailArgs& args, Queue&) const override {
    if (!IsOff(args.guard)) cpu::TwinRailUpdate(args, pool_);
  }

  void NormalizeByGram(const GramNormArgs& args, Queue&) const override {
    cpu::NormalizeByGram(args, pool_);
  }

  // One partial sum of squares a block of rows, added in block order.
  void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue&) const override {
    if (IsOff(args.guard)) return;
    const int64_t matrices = args.o.dim(0), rows = args.o.dim(1), cols = args.o.dim(2);
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    const auto rows_of = [&](int64_t block) {
      return std::min(kBlockRows, rows - block * kBlockRows);
    };
    const auto offset = [&](int64_t task) {
      return (task / blocks * rows + task % blocks * kBlockRows) * cols;
    };
    // Per matrix and block: of each column, or of the block's rows.
    const int64_t width = args.per_row ? kBlockRows : cols;
    std::vector<float> sums(matrices * blocks * width);
    pool_.ParallelFor(matrices * blocks, [&](int64_t task) {
      const BF16* o = args.o.bf16() + offset(task);
      float* out = sums.data() + task * width;
      const int64_t n = rows_of(task % blocks);
      if (!args.per_row) {
        KERNELS_DISPATCH(ColumnSquares)(o, n, cols, out);
        return;
      }
      for (int64_t row = 0; row < n; ++row) {
        out[row] = KERNELS_DISPATCH(SumSquares)(o + row * cols, cols);
      }
    });
    pool_.ParallelFor(matrices, [&](int64_t matrix) {
      float* first = sums.data() + matrix * blocks * width;
      if (!args.per_row) {
        for (int64_t block = 1; block < blocks; ++block) {
          for (int64_t j = 0; j < cols; ++j) first[j] += first[block * width + j];
        }
      }
      UpdateSecondMoment(args, matrix, first);
    });
    pool_.ParallelFor(matrices * blocks, [&](int64_t task) {
      const int64_t block = task % blocks, n = rows_of(block);
      const float* factors = sums.data() + task / blocks * blocks * width;
      const BF16* o = args.o.bf16() + offset(task);
      BF16* p = args.p.bf16() + offset(task);
      if (args.per_row) {
        KERNELS_DISPATCH(MultiplyRows)(o, factors + block * kBlockRows, n, cols, p);
      } else {
        KERNELS_DISPATCH(MultiplyColumns)(o, factors, n, cols, p);
      }
    });
  }

  void MatrixUpdate(const MatrixUpdateArgs& args, Queue&) const override {
    if (IsOff(args.guard)) return;
    const int64_t size = args.p.dim(1) * args.p.dim(2);
    const int64_t blocks = Blocks(size);
    pool_.ParallelFor(args.p.dim(0) * blocks, [&](int64_t task) {
      const int64_t matrix = task / blocks;
      const int64_t begin = task % blocks * kBlock;
      KERNELS_DISPATCH(MatrixRange)
      (args.p, args.o, args.lr.f32()[matrix], args.decay.f32()[matrix], matrix * size + begin,
       std::min(kBlock, size - begin));
    });
  }

  void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue&) const override {
    if (!IsOff(args.guard)) cpu::SplitMatrixUpdate(args, pool_);
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<OptimizerOps> MakeCpuOptimizerOps(ThreadPool& pool) {
  return std::make_unique<CpuOptimizerOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
