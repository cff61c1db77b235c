// Ops on whole weights on the CPU. All are bound by memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weight.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void ScaleTo(const BF16* HWY_RESTRICT w, float factor, int64_t size, BF16* HWY_RESTRICT y) {
  const DF d;
  const VF by = hn::Set(d, factor);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Mul(by, LoadAny(d, w + i, n)), y + i, n);
  });
}

// Scales dw, and returns the sum of (the old) dw * w.
float ScaleAndDot(const BF16* HWY_RESTRICT w, float factor, int64_t size, float* HWY_RESTRICT dw) {
  const DF d;
  const VF by = hn::Set(d, factor);
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF gradient = LoadAny(d, dw + i, n);
    sum = hn::MulAdd(gradient, LoadAny(d, w + i, n), sum);
    StoreAny(d, hn::Mul(by, gradient), dw + i, n);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(ScaleTo);
KERNELS_EXPORT(ScaleAndDot);

// Elements of one task, and of one partial sum.
constexpr int64_t kBlock = 16384;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// A task of a transposition: kTile rows of y, kStrip elements each, in tiles whose two sides stay
// in the first cache.
constexpr int64_t kTile = 32, kStrip = 1024;

// Calls move(from, to) for elements x[from] and y[to], x being [rows, cols] and y = x^T.
template <typename Move>
void ForEachTransposed(int64_t rows, int64_t cols, ThreadPool& pool, const Move& move) {
  const int64_t strips = Blocks(rows, kStrip);
  pool.ParallelFor(Blocks(cols, kTile) * strips, [&](int64_t task) {
    const int64_t first_col = task / strips * kTile, first_row = task % strips * kStrip;
    const int64_t end_col = std::min(first_col + kTile, cols);
    const int64_t end_row = std::min(first_row + kStrip, rows);
    for (int64_t row = first_row; row < end_row; row += kTile) {
      const int64_t end = std::min(row + kTile, end_row);
      for (int64_t j = first_col; j < end_col; ++j) {
        for (int64_t i = row; i < end; ++i) move(i * cols + j, j * rows + i);
      }
    }
  });
}

class CpuWeightOps : public WeightOps {
 public:
  explicit CpuWeightOps(ThreadPool& pool) : pool_(pool) {}

  void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue&) const override {
    const float factor = scalars.f32()[index];
    const int64_t size = w.size();
    pool_.ParallelFor(Blocks(size, kBlock), [&](int64_t block) {
      const int64_t begin = block * kBlock;
      KERNELS_DISPATCH(ScaleTo)
      (w.bf16() + begin, factor, std::min(kBlock, size - begin), y.bf16() + begin);
    });
  }

  // One partial sum a block, added in block order.
  void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                       Queue&) const override {
    const float factor = scalars.f32()[index];
    const int64_t size = w.size();
    std::vector<float> partial(Blocks(size, kBlock));
    pool_.ParallelFor(static_cast<int64_t>(partial.size()), [&](int64_t block) {
      const int64_t begin = block * kBlock;
      partial[block] = KERNELS_DISPATCH(ScaleAndDot)(
          w.bf16() + begin, factor, std::min(kBlock, size - begin), dw.f32() + begin);
    });
    double sum = 0;
    for (float block : partial) sum += block;
    dscalars.f32()[index] += static_cast<float>(sum);
  }

  void TransposeCopy(Tensor x, Tensor y, Queue&) const override {
    if (x.dtype() == DType::kF32) {
      Copy(x, x.f32(), y.f32());
    } else {
      Copy(x, x.bf16(), y.bf16());
    }
  }

  void TransposeAdd(Tensor x, Tensor y, Queue&) const override {
    const float* from = x.f32();
    float* to = y.f32();
    ForEachTransposed(x.dim(0), x.dim(1), pool_, [&](int64_t i, int64_t j) { to[j] += from[i]; });
  }

 private:
  template <typename T>
  void Copy(const Tensor& x, const T* from, T* to) const {
    ForEachTransposed(x.dim(0), x.dim(1), pool_, [&](int64_t i, int64_t j) { to[j] = from[i]; });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<WeightOps> MakeCpuWeightOps(ThreadPool& pool) {
  return std::make_unique<CpuWeightOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
