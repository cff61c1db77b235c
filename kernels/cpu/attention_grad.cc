// The backward pass of attention on the CPU. With P = exp(scale q k' - lse), from Dao et al., 2022:
//   delta = rowsum(do * o),  dS = P * (do v' - delta),
//   dq = scale dS k,  dk = scale dS' q,  dv = P' do.
// P and dS are computed in the pass over queries and again in the pass over keys: two products
// of seven, against a scratch of the slot's size or atomic adds.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_grad.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// sum(a[i] * b[i])
float Dot(const BF16* HWY_RESTRICT a, const BF16* HWY_RESTRICT b, int64_t size) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    sum = hn::MulAdd(LoadAny(d, a + i, n), LoadAny(d, b + i, n), sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// At the visible columns of `keys`: p, on entry the scores, becomes exp(p - lse), and ds, on
// entry do v', becomes p * (ds - delta). Both become 0 elsewhere.
void GradRow(const Visible& visible, int64_t keys, float lse, float delta, float* HWY_RESTRICT p,
             float* HWY_RESTRICT ds) {
  const DF d;
  const int64_t from = std::min(visible.from, keys);
  const int64_t to = std::max(visible.to, from);
  const VF shift = hn::Set(d, lse);
  const VF mean = hn::Set(d, delta);
  ForEachVec(d, to - from, [&](int64_t i, int64_t n) {
    const VF probability = ExpKeepNan(d, hn::Sub(LoadAny(d, p + from + i, n), shift));
    const VF slope = hn::Mul(probability, hn::Sub(LoadAny(d, ds + from + i, n), mean));
    StoreAny(d, probability, p + from + i, n);
    StoreAny(d, slope, ds + from + i, n);
  });
  for (float* row : {p, ds}) {
    std::fill(row, row + from, 0.0f);
    std::fill(row + to, row + keys, 0.0f);
  }
}

// P and dS of `rows` queries from `query` and `keys` keys from `key`, both with rows of
// kAttentionBlock values. The blocks are f32 copies.
struct Step {
  int64_t query, rows, key, keys;
  const float *q, *k, *v, *do_;
  float *p, *ds;
};
void ProbabilityAndSlope(const AttentionProblem& problem, const AttentionTile& tile,
                         const float* deltas, const Step& step) {
  const int64_t d = problem.head_dim;
  constexpr int64_t kBlock = kAttentionBlock;
  Sgemm(false, true, step.rows, step.keys, d, problem.scale, step.q, d, step.k, d, 0.0f, step.p,
        kBlock);
  Sgemm(false, true, step.rows, step.keys, d, 1.0f, step.do_, d, step.v, d, 0.0f, step.ds, kBlock);
  int64_t first[kBlock];
  tile.FirstKeys(problem, step.query, step.rows, first);
  const int64_t offset = tile.RowOffset(problem, step.query);
  for (int64_t row = 0; row < step.rows; ++row) {
    const Visible visible(step.query + row, first[row], step.key, step.keys);
    GradRow(visible, step.keys, problem.lse[offset + row], deltas[offset + row],
            step.p + row * kBlock, step.ds + row * kBlock);
  }
}

void QueryGrad(const AttentionProblem& problem, const AttentionGradPointers& grad, int64_t task) {
  const AttentionTile tile(problem, task);
  const int64_t d = problem.head_dim;
  const int64_t stride = problem.row_stride();
  const int64_t rows = tile.end - tile.begin;
  const int64_t offset = tile.Offset(problem, tile.begin);
  constexpr int64_t kBlock = kAttentionBlock;
  float* q = ThreadScratch(0, kBlock * (5 * d + 2 * kBlock));
  float* do_ = q + kBlock * d;
  float* k = do_ + kBlock * d;
  float* v = k + kBlock * d;
  float* dq = v + kBlock * d;
  float* p = dq + kBlock * d;
  float* ds = p + kBlock * kBlock;

  float* delta = grad.delta + tile.RowOffset(problem, tile.begin);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = offset + row * stride;
    delta[row] = Dot(grad.do_ + at, problem.o + at, d);
  }
  LoadRows(problem.q + offset, stride, rows, d, q);
  LoadRows(grad.do_ + offset, stride, rows, d, do_);
  std::fill(dq, dq + rows * d, 0.0f);
  int64_t first_key = 0;
  tile.FirstKeys(problem, tile.begin, 1, &first_key);
  for (int64_t key = first_key; key < tile.end; key += kBlock) {
    const int64_t keys = std::min(kBlock, tile.end - key);
    LoadRows(problem.k + tile.Offset(problem, key), stride, keys, d, k);
    LoadRows(problem.v + tile.Offset(problem, key), stride, keys, d, v);
    ProbabilityAndSlope(problem, tile, grad.delta,
                        {tile.begin, rows, key, keys, q, k, v, do_, p, ds});
    Sgemm(false, false, rows, d, keys, problem.scale, ds, kBlock, k, d, 1.0f, dq, d);
  }
  StoreRows(dq, nullptr, rows, d, grad.dq + offset, stride);
}

void KeyGrad(const AttentionProblem& problem, const AttentionGradPointers& grad, int64_t task) {
  const AttentionTile tile(problem, task);
  const int64_t d = problem.head_dim;
  const int64_t stride = problem.row_stride();
  const int64_t keys = tile.end - tile.begin;
  const int64_t offset = tile.Offset(problem, tile.begin);
  constexpr int64_t kBlock = kAttentionBlock;
  float* k = ThreadScratch(0, kBlock * (6 * d + 2 * kBlock));
  float* v = k + kBlock * d;
  float* q = v + kBlock * d;
  float* do_ = q + kBlock * d;
  float* dk = do_ + kBlock * d;
  float* dv = dk + kBlock * d;
  float* p = dv + kBlock * d;
  float* ds = p + kBlock * kBlock;

  LoadRows(problem.k + offset, stride, keys, d, k);
  LoadRows(problem.v + offset, stride, keys, d, v);
  std::fill(dk, dk + keys * d, 0.0f);
  std::fill(dv, dv + keys * d, 0.0f);
  // The last key of the block is the one that is seen furthest.
  const int64_t queries_end =
      std::min(problem.window.LastQuery(tile.end - 1) + 1, tile.DocumentEnd(tile.end - 1));
  for (int64_t query = tile.begin; query < queries_end; query += kBlock) {
    const int64_t rows = std::min(kBlock, queries_end - query);
    LoadRows(problem.q + tile.Offset(problem, query), stride, rows, d, q);
    LoadRows(grad.do_ + tile.Offset(problem, query), stride, rows, d, do_);
    ProbabilityAndSlope(problem, tile, grad.delta,
                        {query, rows, tile.begin, keys, q, k, v, do_, p, ds});
    Sgemm(true, false, keys, d, rows, 1.0f, p, kBlock, do_, d, 1.0f, dv, d);
    Sgemm(true, false, keys, d, rows, problem.scale, ds, kBlock, q, d, 1.0f, dk, d);
  }
  StoreRows(dk, nullptr, keys, d, grad.dk + offset, stride);
  StoreRows(dv, nullptr, keys, d, grad.dv + offset, stride);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {
KERNELS_EXPORT(QueryGrad);
KERNELS_EXPORT(KeyGrad);
}  // namespace

void AttentionQueryGradTask(const AttentionProblem& problem, const AttentionGradPointers& grad,
                            int64_t task) {
  KERNELS_DISPATCH(QueryGrad)(problem, grad, task);
}

void AttentionKeyGradTask(const AttentionProblem& problem, const AttentionGradPointers& grad,
                          int64_t task) {
  KERNELS_DISPATCH(KeyGrad)(problem, grad, task);
}

}  // namespace kernels
#endif  // HWY_ONCE
