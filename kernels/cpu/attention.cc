// Attention on the CPU: one task per slot, head and block of queries, which walks over the keys
// in sight with a running softmax in f32 (Milakov and Gimelshein, 2018; Dao et al., 2022).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "third_party/absl_compat/check.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The running softmax of one query.
struct RowState {
  float max = kMinusInfinity;
  float sum = 0;
};

// scores[0, kAttentionBlock) becomes exp(score - max) at the visible columns and 0 elsewhere.
// Folds their maximum and sum into `state` and scales the output so far, `o`, to the new maximum.
void SoftmaxRow(const Visible& visible, float* HWY_RESTRICT scores, RowState& state,
                float* HWY_RESTRICT o, int64_t head_dim) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  if (visible.empty()) {
    std::fill(scores, scores + kAttentionBlock, 0.0f);
    return;
  }
  const int64_t from = visible.from / lanes * lanes;
  const int64_t to = (visible.to + lanes - 1) / lanes * lanes;
  std::fill(scores, scores + from, 0.0f);
  std::fill(scores + from, scores + visible.from, kMinusInfinity);
  std::fill(scores + visible.to, scores + to, kMinusInfinity);
  std::fill(scores + to, scores + kAttentionBlock, 0.0f);

  VF largest = hn::Set(d, state.max);
  for (int64_t i = from; i < to; i += lanes) largest = hn::Max(largest, LoadVec(d, scores + i));
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  if (max != state.max) {
    const float shrink = std::exp(state.max - max);
    state.max = max;
    state.sum *= shrink;
    const VF factor = hn::Set(d, shrink);
    ForEachVec(d, head_dim, [&](int64_t i, int64_t n) {
      StoreAny(d, hn::Mul(LoadAny(d, o + i, n), factor), o + i, n);
    });
  }
  const VF shift = hn::Set(d, max);
  VF sum = hn::Zero(d);
  for (int64_t i = from; i < to; i += lanes) {
    const VF p = ExpKeepNan(d, hn::Sub(LoadVec(d, scores + i), shift));
    StoreVec(d, p, scores + i);
    sum = hn::Add(sum, p);
  }
  state.sum += hn::GetLane(hn::SumOfLanes(d, sum));
}

void AttentionTask(const AttentionProblem& problem, int64_t task) {
  const AttentionTile tile(problem, task);
  const int64_t d = problem.head_dim;
  const int64_t stride = problem.row_stride();
  const int64_t rows = tile.end - tile.begin;
  constexpr int64_t kBlock = kAttentionBlock;
  float* q = ThreadScratch(0, kBlock * (4 * d + kBlock));
  float* k = q + kBlock * d;
  float* v = k + kBlock * d;
  float* o = v + kBlock * d;
  float* scores = o + kBlock * d;

  int64_t first[kBlock];
  tile.FirstKeys(problem, tile.begin, rows, first);
  RowState states[kBlock];
  std::fill(o, o + rows * d, 0.0f);
  LoadRows(problem.q + tile.QueryOffset(problem, tile.begin), stride, rows, d, q);
  // The first keys rise with the query, so the first query's is the block's.
  for (int64_t key = first[0]; key < tile.end; key += kBlock) {
    const int64_t keys = std::min(kBlock, tile.end - key);
    LoadRows(problem.k + tile.Offset(problem, key), stride, keys, d, k);
    LoadRows(problem.v + tile.Offset(problem, key), stride, keys, d, v);
    Sgemm(false, true, rows, keys, d, problem.scale, q, d, k, d, 0.0f, scores, kBlock);
    for (int64_t row = 0; row < rows; ++row) {
      const Visible visible(tile.begin + row, first[row], key, keys);
      SoftmaxRow(visible, scores + row * kBlock, states[row], o + row * d, d);
    }
    Sgemm(false, false, rows, d, keys, 1.0f, scores, kBlock, v, d, 1.0f, o, d);
  }

  float inverse[kBlock];
  float* lse = problem.lse + tile.RowOffset(problem, tile.begin);
  for (int64_t row = 0; row < rows; ++row) {
    inverse[row] = 1.0f / states[row].sum;
    lse[row] = states[row].max + std::log(states[row].sum);
  }
  StoreRows(o, inverse, rows, d, problem.o + tile.QueryOffset(problem, tile.begin), stride);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(AttentionTask);

void CheckBoundaries(const Tensor& boundaries, int64_t tokens) {
  const int64_t n = boundaries.dim(1);
  for (int64_t slot = 0; slot < boundaries.dim(0); ++slot) {
    const int32_t* ends = boundaries.i32() + slot * n;
    CHECK_EQ(ends[0], 0) << "Attention: first boundary of slot " << slot;
    CHECK_EQ(ends[n - 1], tokens) << "Attention: last boundary of slot " << slot;
    CHECK(std::is_sorted(ends, ends + n)) << "Attention: boundaries of slot " << slot << " fall";
  }
}

class CpuAttentionOps : public AttentionOps {
 public:
  explicit CpuAttentionOps(ThreadPool& pool) : pool_(pool) {}

  void Attention(const AttentionArgs& args, Queue& queue) const override {
    CachedAttention(args, 0, queue);
  }

  void CachedAttention(const AttentionArgs& args, int64_t begin, Queue&) const override {
    CheckBoundaries(args.boundaries, args.k.dim(1));
    const AttentionProblem problem(args, begin);
    pool_.ParallelFor(problem.tasks(), [&](int64_t task) {
      KERNELS_DISPATCH(AttentionTask)(problem, task);
    });
  }

  // Two passes, so that each gradient has one writer and one order of summation.
  void AttentionGrad(const AttentionArgs& forward, const AttentionGradArgs& args,
                     Queue&) const override {
    CheckBoundaries(forward.boundaries, forward.q.dim(1));
    const AttentionProblem problem(forward);
    const AttentionGradPointers grad = {args.do_.bf16(), args.delta.f32(), args.dq.bf16(),
                                        args.dk.bf16(), args.dv.bf16()};
    pool_.ParallelFor(problem.tasks(),
                      [&](int64_t task) { AttentionQueryGradTask(problem, grad, task); });
    pool_.ParallelFor(problem.tasks(),
                      [&](int64_t task) { AttentionKeyGradTask(problem, grad, task); });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<AttentionOps> MakeCpuAttentionOps(ThreadPool& pool) {
  return std::make_unique<CpuAttentionOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
