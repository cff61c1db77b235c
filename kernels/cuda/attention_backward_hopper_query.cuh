// dq of an item of attention_backward_hopper.cu: a warpgroup has 64 queries, their rows of q and do
// in registers, and goes over the keys they see, 64 a step:
//   s = q k', p = exp2(s - lse), dp = do v', ds = p * (dp - delta), dq += ds k.
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_QUERY_CUH_
#define KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_QUERY_CUH_

#include "kernels/cuda/attention_backward_hopper.cuh"

namespace kernels::cuda::backward_hopper::query_item {

// A tile's rows as left factors of all 128 columns.
using Rows = RowsFactor;

// `warp` of the warpgroup's.
__device__ __forceinline__ void LoadRows(Rows& rows, uint32_t tile, int warp) {
  const int lane = Lane();
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const int chunk = i % 4 * 2 + lane / 16;
    LoadMatrices<false>(rows[i], tile + i / 4 * kBoxBytes + row * 128 + (chunk ^ (row % 8)) * 16);
  }
}

// Of the thread's rows g and g + 8.
struct RowValues {
  __device__ RowValues(const Problem& problem, const Item<true>& item, int in_item)
      : row(item.begin() + in_item) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows behind the slot's end are never stored.
      const int token = min(row + 8 * h, problem.tokens - 1);
      lse_log2[h] = problem.lse[item.row_offset(problem) + token] * kLog2E;
      first_key[h] = problem.first_key[item.token_offset(problem) + token];
    }
  }

  int row;
  float lse_log2[2], delta[2];
  int first_key[2];
};

// ds of a step, rounded, from s and dp. kMasked: not all keys are seen by all rows.
template <bool kMasked>
__device__ __forceinline__ void Slopes(float (&s)[kScores], float (&dp)[kScores],
                                       const RowValues& rows, float scale_log2, int step,
                                       LeftFactor& left) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    s[i] = Exp2(fmaf(s[i], scale_log2, -rows.lse_log2[i / 2 % 2]));
  }
  WarpgroupWait<0>();
  FenceOperand(dp);
  const int column = step + Lane() % 4 * 2;
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float delta = rows.delta[h];
      const int at = 4 * j + 2 * h;
      float low = s[at] * (dp[at] - delta), high = s[at + 1] * (dp[at + 1] - delta);
      if constexpr (kMasked) {
        // Of first <= key <= query, as one comparison.
        const uint32_t span = rows.row + 8 * h - rows.first_key[h];
        const uint32_t key = column + 8 * j - rows.first_key[h];
        low = key <= span ? low : 0.0f;
        high = key + 1 <= span ? high : 0.0f;
      }
      left[j / 2][j % 2 * 2 + h] = PackPair(low, high);
    }
  }
}

__device__ __forceinline__ void Step(float (&dq)[kSums], const Rows& q, const Rows& do_,
                                     const RowValues& rows, float scale_log2, int step, bool masked,
                                     uint32_t k, const Shared& shared, Consumer& consumer) {
  const uint32_t v = k + kTileBytes;
  float s[kScores], dp[kScores];
  WarpgroupArrive();
  MultiplyTransposed(s, q, k);
  WarpgroupCommit();
  // The step before is done, and its factors' registers are free for dp.
  WarpgroupWait<1>();
  consumer.Free();
  WarpgroupArrive();
  MultiplyTransposed(dp, do_, v);
  WarpgroupCommit();
  WarpgroupWait<1>();
  FenceOperand(s);
  LeftFactor left;
  if (masked) {
    Slopes<true>(s, dp, rows, scale_log2, step, left);
  } else {
    Slopes<false>(s, dp, rows, scale_log2, step, left);
  }
  WarpgroupArrive();
  MultiplyTile(dq, left, k);
  WarpgroupCommit();
  consumer.last = shared.empty + consumer.state.stage * 8;
}

// delta of the thread's rows, from do and from o in shared memory.
__device__ __forceinline__ void Delta(RowValues& rows, const Rows& do_, uint32_t o, int warp) {
  Rows o_rows;
  LoadRows(o_rows, o, warp);
  rows.delta[0] = rows.delta[1] = 0;
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 a = __bfloat1622float2(Pair(o_rows[i][part]));
      const float2 b = __bfloat1622float2(Pair(do_[i][part]));
      float& sum = rows.delta[part % 2];
      sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
    }
  }
  rows.delta[0] = WarpSum<4>(rows.delta[0]);
  rows.delta[1] = WarpSum<4>(rows.delta[1]);
}

__device__ __forceinline__ void StoreDelta(const Problem& problem, const Item<true>& item,
                                           const RowValues& rows) {
  if (Lane() % 4 != 0) return;
  float* delta = problem.delta + item.row_offset(problem) + rows.row;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row + 8 * h < problem.tokens) delta[8 * h] = rows.delta[h];
  }
}

__device__ __forceinline__ void Consume(const Maps& maps, const Problem& problem,
                                        const Item<true>& item, const Header& header,
                                        const Shared& shared, Consumer& consumer) {
  const int group = consumer.group;
  const int begin = item.begin() + group * kRows;
  const bool any = begin < problem.tokens;
  RowValues rows(problem, item, group * kRows + 16 * consumer.warp + Lane() / 4);
  Rows q, do_;
  const uint32_t tiles =
      shared.rows + consumer.buffer.stage * Shared::kRowsBytes + group * 2 * kTileBytes;
  LoadRows(q, tiles, consumer.warp);
  LoadRows(do_, tiles + kTileBytes, consumer.warp);
  const uint32_t ring = shared.ring;
  WaitForPhase(shared.full + consumer.state.stage * 8, consumer.state.parity);
  Delta(rows, do_, ring + consumer.state.stage * Shared::kStageBytes + group * kTileBytes,
        consumer.warp);
  consumer.Pass(shared);
  consumer.state.Advance();
  StoreDelta(problem, item, rows);
  __syncwarp();
  if (consumer.tells) Arrive(shared.delta_full + consumer.buffer.stage * 8);

  float dq[kSums] = {};
  for (int step = header.first_step; step < header.end_step; step += kRows) {
    WaitForPhase(shared.full + consumer.state.stage * 8, consumer.state.parity);
    if (any && step <= begin && step + kRows > header.first) {
      Step(dq, q, do_, rows, problem.scale_log2, step, step == begin || step < header.last,
           ring + consumer.state.stage * Shared::kStageBytes, shared, consumer);
    } else {
      consumer.Pass(shared);
    }
    consumer.state.Advance();
    if (step == header.first_step) consumer.FreeRows();
  }
  WarpgroupWait<0>();
  FenceOperand(dq);
  consumer.Free();
  // In place of q: each warp writes where only it has read.
  StoreSums(dq, problem.scale, tiles, consumer.warp);
  if (consumer.SyncStores()) StoreTile(maps.dq, tiles, item, begin);
  consumer.Leave(shared);
}

}  // namespace kernels::cuda::backward_hopper::query_item

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_QUERY_CUH_
