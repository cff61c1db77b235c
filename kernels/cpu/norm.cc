// RMSNorm and the mixes around it on the CPU: one task per fixed block of a slot's rows, a row at
// a time. Rows live in an f32 scratch row while they are worked on, so each bf16 output is
// rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

#ifndef KERNELS_CPU_NORM_SHARED_
#define KERNELS_CPU_NORM_SHARED_
namespace kernels {

// The values of a layer's scalars.
struct MixWeights {
  float x = 0;      // of the stream
  float x0 = 0;     // of x0, with its sign
  float s = 0;      // of the saved output, 0 without a skip connection
  float dskip = 0;  // the gradient of the skip's scalar by the sum of dmixed * saved
};

// Sums of dmixed times: x + s * saved; x0; saved. What the scalars' gradients are made of.
using MixSums = std::array<float, 3>;

}  // namespace kernels
#endif  // KERNELS_CPU_NORM_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float InvRms(const float* row, int64_t cols) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF v = LoadAny(d, row + i, n);
    sum = hn::MulAdd(v, v, sum);
  });
  return 1.0f / std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)) / cols + kRmsEpsilon);
}

void StoreScaled(const float* row, float factor, BF16* y, int64_t cols) {
  const DF d;
  const VF f = hn::Set(d, factor);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Mul(LoadAny(d, row + i, n), f), y + i, n);
  });
}

void NormRow(const BF16* x, int64_t cols, float* scratch, BF16* y, float* inv_rms) {
  const DF d;
  ForEachVec(d, cols,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, x + i, n), scratch + i, n); });
  *inv_rms = InvRms(scratch, cols);
  StoreScaled(scratch, *inv_rms, y, cols);
}

// scratch <- residual + inv_rms * (du - n * mean(n * du)), n = x * inv_rms, with du in scratch
// before. x is f32 or bf16.
template <typename T>
void NormGradInPlace(float* scratch, const T* x, const BF16* residual, float inv_rms,
                     int64_t cols) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    sum = hn::MulAdd(LoadAny(d, x + i, n), LoadAny(d, scratch + i, n), sum);
  });
  // n * mean(n * du) = x * share
  const VF share = hn::Set(d, inv_rms * inv_rms * (hn::GetLane(hn::SumOfLanes(d, sum)) / cols));
  const VF rho = hn::Set(d, inv_rms);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF centred = hn::NegMulAdd(LoadAny(d, x + i, n), share, LoadAny(d, scratch + i, n));
    const VF base = residual == nullptr ? hn::Zero(d) : LoadAny(d, residual + i, n);
    StoreAny(d, hn::MulAdd(rho, centred, base), scratch + i, n);
  });
}

void LoadRow(const BF16* x, int64_t cols, float* row) {
  const DF d;
  ForEachVec(d, cols, [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, x + i, n), row + i, n); });
}

void NormGradRow(const BF16* dy, const BF16* x, float inv_rms, const BF16* residual, int64_t cols,
                 float* scratch, BF16* dx) {
  LoadRow(dy, cols, scratch);
  NormGradInPlace(scratch, x, residual, inv_rms, cols);
  StoreScaled(scratch, 1.0f, dx, cols);
}

// The mix, rounded to bf16. `saved` is null without a skip connection.
void MixInto(const BF16* x, const BF16* x0, const BF16* saved, MixWeights w, int64_t cols,
             float* mixed) {
  const DF d;
  const VF wx = hn::Set(d, w.x), wx0 = hn::Set(d, w.x0), s = hn::Set(d, w.s);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    VF v = LoadAny(d, x + i, n);
    if (saved != nullptr) v = hn::MulAdd(s, LoadAny(d, saved + i, n), v);
    v = hn::MulAdd(wx, v, hn::Mul(wx0, LoadAny(d, x0 + i, n)));
    StoreAny(d, RoundVecToBF16(d, v), mixed + i, n);
  });
}

void MixRow(const BF16* x, const BF16* x0, const BF16* saved, MixWeights w, int64_t cols,
            float* scratch, BF16* mixed, BF16* u, float* inv_rms) {
  MixInto(x, x0, saved, w, cols, scratch);
  StoreScaled(scratch, 1.0f, mixed, cols);
  if (u == nullptr) return;
  *inv_rms = InvRms(scratch, cols);
  StoreScaled(scratch, *inv_rms, u, cols);
}

// Adds this row's part to `sums`.
void MixGradRow(const MixNormGradArgs& a, int64_t row, MixWeights w, float* scratch, float* mixed,
                MixSums* sums) {
  const DF d;
  const int64_t cols = a.x.cols(), at = row * cols;
  const BF16* residual = a.dresidual ? a.dresidual.bf16() + at : nullptr;
  const BF16* saved = a.saved ? a.saved.bf16() + at : nullptr;
  LoadRow(a.du ? a.du.bf16() + at : residual, cols, scratch);
  if (a.du_head) {
    const int64_t k = a.du_head.cols();
    for (int64_t i = 0; i < k; ++i) scratch[i] += a.du_head.f32()[row * k + i];
  }
  if (a.du) {
    MixInto(a.x.bf16() + at, a.x0.bf16() + at, saved, w, cols, mixed);
    NormGradInPlace(scratch, mixed, residual, a.inv_rms.f32()[row], cols);
  }
  const BF16* extra = a.dx_extra ? a.dx_extra.bf16() + at : nullptr;
  const VF wx = hn::Set(d, w.x), wx0 = hn::Set(d, w.x0), s = hn::Set(d, w.s);
  const VF wxs = hn::Set(d, w.x * w.s);
  VF sum_x = hn::Zero(d), sum_x0 = hn::Zero(d), sum_saved = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF g = LoadAny(d, scratch + i, n);
    VF x = LoadAny(d, a.x.bf16() + at + i, n);
    if (saved != nullptr) {
      const VF old = LoadAny(d, saved + i, n);
      x = hn::MulAdd(s, old, x);
      sum_saved = hn::MulAdd(g, old, sum_saved);
      StoreAny(d, hn::Mul(wxs, g), a.dsaved.bf16() + at + i, n);
    }
    sum_x = hn::MulAdd(g, x, sum_x);
    sum_x0 = hn::MulAdd(g, LoadAny(d, a.x0.bf16() + at + i, n), sum_x0);
    const VF base = extra == nullptr ? hn::Zero(d) : LoadAny(d, extra + i, n);
    StoreAny(d, hn::MulAdd(wx, g, base), a.dx.bf16() + at + i, n);
    BF16* dx0 = a.dx0.bf16() + at + i;
    StoreAny(d, hn::MulAdd(wx0, g, LoadAny(d, dx0, n)), dx0, n);
  });
  (*sums)[0] += hn::GetLane(hn::SumOfLanes(d, sum_x));
  (*sums)[1] += hn::GetLane(hn::SumOfLanes(d, sum_x0));
  (*sums)[2] += hn::GetLane(hn::SumOfLanes(d, sum_saved));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(NormRow);
KERNELS_EXPORT(NormGradRow);
KERNELS_EXPORT(MixRow);
KERNELS_EXPORT(MixGradRow);

constexpr int64_t kRows = 32;  // of one task; fixes the order in which scalar gradients add up

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

MixWeights WeightsOf(const Tensor& scalars, const MixScalars& which) {
  const float* values = scalars.f32();
  const float lambda_x0 = values[which.lambda_x0];
  MixWeights weights = {.x = which.lambda_x < 0 ? 1.0f : values[which.lambda_x],
                        .x0 = which.subtract_x0 ? -lambda_x0 : lambda_x0};
  if (which.skip < 0) return weights;
  weights.s = which.skip_is_weight ? values[which.skip] : Sigmoid(values[which.skip]);
  weights.dskip = which.skip_is_weight ? weights.x : weights.x * weights.s * (1 - weights.s);
  return weights;
}

class CpuNormOps : public NormOps {
 public:
  explicit CpuNormOps(ThreadPool& pool) : pool_(pool) {}

  void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue&) const override {
    const int64_t cols = x.cols();
    ForRows(x, [&](int64_t row, float* scratch) {
      KERNELS_DISPATCH(NormRow)
      (x.bf16() + row * cols, cols, scratch, y.bf16() + row * cols, inv_rms.f32() + row);
    });
  }

  void RmsNormGrad(const RmsNormGradArgs& args, Queue&) const override {
    const int64_t cols = args.x.cols();
    ForRows(args.x, [&](int64_t row, float* scratch) {
      const int64_t at = row * cols;
      KERNELS_DISPATCH(NormGradRow)
      (args.dy.bf16() + at, args.x.bf16() + at, args.inv_rms.f32()[row],
       args.residual ? args.residual.bf16() + at : nullptr, cols, scratch, args.dx.bf16() + at);
    });
  }

  void MixNorm(const MixNormArgs& args, Queue&) const override {
    const int64_t cols = args.x.cols();
    const MixWeights weights = WeightsOf(args.scalars, args.which);
    ForRows(args.x, [&](int64_t row, float* scratch) {
      const int64_t at = row * cols;
      KERNELS_DISPATCH(MixRow)
      (args.x.bf16() + at, args.x0.bf16() + at, args.saved ? args.saved.bf16() + at : nullptr,
       weights, cols, scratch, args.mixed.bf16() + at, args.u ? args.u.bf16() + at : nullptr,
       args.u ? args.inv_rms.f32() + row : nullptr);
    });
  }

  void MixNormGrad(const MixNormGradArgs& args, Queue&) const override {
    const int64_t slots = args.x.dim(0), tokens = args.x.dim(1);
    const int64_t blocks = (tokens + kRows - 1) / kRows;
    const MixWeights weights = WeightsOf(args.scalars, args.which);
    std::vector<MixSums> sums(slots * blocks, MixSums{});
    pool_.ParallelFor(slots * blocks, [&](int64_t task) {
      float* scratch = ThreadScratch(0, args.x.cols());
      float* mixed = ThreadScratch(1, args.x.cols());
      const int64_t slot = task / blocks, begin = task % blocks * kRows;
      for (int64_t t = begin; t < std::min(begin + kRows, tokens); ++t) {
        KERNELS_DISPATCH(MixGradRow)
        (args, slot * tokens + t, weights, scratch, mixed, &sums[task]);
      }
    });
    for (int64_t slot = 0; slot < slots; ++slot) {
      MixSums total = {};
      for (int64_t block = 0; block < blocks; ++block) {
        for (int i = 0; i < 3; ++i) total[i] += sums[slot * blocks + block][i];
      }
      float* leaf =
          args.dscalars.f32() + (args.dscalars.dim(0) == 1 ? 0 : slot) * args.dscalars.dim(1);
      if (args.which.lambda_x >= 0) leaf[args.which.lambda_x] += total[0];
      leaf[args.which.lambda_x0] += args.which.subtract_x0 ? -total[1] : total[1];
      if (args.which.skip >= 0) leaf[args.which.skip] += weights.dskip * total[2];
    }
  }

 private:
  // Calls work(row, scratch) for all rows of x, whose rows do not depend on each other.
  template <typename F>
  void ForRows(const Tensor& x, const F& work) const {
    const int64_t rows = x.rows();
    pool_.ParallelFor((rows + kRows - 1) / kRows, [&](int64_t block) {
      float* scratch = ThreadScratch(0, x.cols());
      for (int64_t row = block * kRows; row < std::min((block + 1) * kRows, rows); ++row) {
        work(row, scratch);
      }
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<NormOps> MakeCpuNormOps(ThreadPool& pool) {
  return std::make_unique<CpuNormOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
