// dk and dv of an item of attention_backward_hopper.cu: a warpgroup has 64 keys and goes over the
// queries that see them, 64 a step. Scores are transposed, keys by queries, so that p' and ds' are
// left factors as they come:
//   s' = k q', p' = exp2(s' - lse), dp' = v do', dv += p' do, ds' = p' * (dp' - delta),
//   dk += ds' q.
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_KEY_CUH_
#define KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_KEY_CUH_

#include "kernels/cuda/attention_backward_hopper.cuh"

namespace kernels::cuda::backward_hopper::key_item {

// Of the thread's keys g and g + 8.
struct Keys {
  int key;
  int last_query[2];
};

__device__ __forceinline__ float2 SharedPair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

// Whether query + 8 j, + 1 too, is seen by the thread's key h.
__device__ __forceinline__ bool Sees(const Keys& keys, int h, int query) {
  // Of key <= query <= last_query, as one comparison.
  const uint32_t span = keys.last_query[h] - (keys.key + 8 * h);
  return static_cast<uint32_t>(query - (keys.key + 8 * h)) <= span;
}

// s becomes p'.
__device__ __forceinline__ void Probabilities(float (&s)[kScores], float scale_log2, uint32_t lse) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 row = SharedPair(lse + j * 32);
    const float minus[2] = {row.x * -kLog2E, row.y * -kLog2E};
#pragma unroll
    for (int i = 0; i < 4; ++i) s[4 * j + i] = Exp2(fmaf(s[4 * j + i], scale_log2, minus[i % 2]));
  }
}

// p' and ds' as left factors, from p' and dp'. kMasked: not all queries see all keys. Then lse and
// delta may be of no query at all, and p' and ds' are 0 whatever they are.
template <bool kMasked>
__device__ __forceinline__ void Factors(const float (&p)[kScores], const float (&dp)[kScores],
                                        const Keys& keys, int query, uint32_t delta,
                                        LeftFactor& left_p, LeftFactor& left_ds) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 mean = SharedPair(delta + j * 32);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = 4 * j + 2 * h;
      float p0 = p[at], p1 = p[at + 1];
      float ds0 = p0 * (dp[at] - mean.x), ds1 = p1 * (dp[at + 1] - mean.y);
      if constexpr (kMasked) {
        const bool sees0 = Sees(keys, h, query + 8 * j), sees1 = Sees(keys, h, query + 8 * j + 1);
        p0 = sees0 ? p0 : 0.0f;
        p1 = sees1 ? p1 : 0.0f;
        ds0 = sees0 ? ds0 : 0.0f;
        ds1 = sees1 ? ds1 : 0.0f;
      }
      left_p[j / 2][j % 2 * 2 + h] = PackPair(p0, p1);
      left_ds[j / 2][j % 2 * 2 + h] = PackPair(ds0, ds1);
    }
  }
}

__device__ __forceinline__ void Step(float (&dk)[kSums], float (&dv)[kSums], uint32_t k,
                                     const Keys& keys, float scale_log2, int step, bool masked,
                                     const Shared& shared, Consumer& consumer) {
  const int stage = consumer.state.stage;
  const uint32_t v = k + kTileBytes;
  const uint32_t q = shared.ring + stage * Shared::kStageBytes, do_ = q + kTileBytes;
  float s[kScores], dp[kScores];
  WarpgroupArrive();
  MultiplyTransposed(s, k, q);
  WarpgroupCommit();
  // The step before is done, and its factors' registers are free for dp.
  WarpgroupWait<1>();
  consumer.Free();
  WarpgroupArrive();
  MultiplyTransposed(dp, v, do_);
  WarpgroupCommit();
  WarpgroupWait<1>();
  FenceOperand(s);
  const int column = Lane() % 4 * 2;
  const uint32_t at = (stage * kRows + column) * 4;
  Probabilities(s, scale_log2, shared.lse + at);
  WarpgroupWait<0>();
  FenceOperand(dp);
  LeftFactor left_p, left_ds;
  if (masked) {
    Factors<true>(s, dp, keys, step + column, shared.delta + at, left_p, left_ds);
  } else {
    Factors<false>(s, dp, keys, step + column, shared.delta + at, left_p, left_ds);
  }
  WarpgroupArrive();
  MultiplyTile(dv, left_p, do_);
  MultiplyTile(dk, left_ds, q);
  WarpgroupCommit();
  consumer.last = shared.empty + stage * 8;
}

__device__ __forceinline__ void Consume(const Maps& maps, const Problem& problem,
                                        const Item<false>& item, const Header& header,
                                        const Shared& shared, Consumer& consumer) {
  const int group = consumer.group;
  const int begin = item.begin() + group * kRows;
  const bool any = begin < problem.tokens;
  Keys keys;
  keys.key = begin + 16 * consumer.warp + Lane() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Keys behind the slot's end are never stored.
    keys.last_query[h] =
        problem.last_query[item.token_offset(problem) + min(keys.key + 8 * h, problem.tokens - 1)];
  }

  const uint32_t k =
      shared.rows + consumer.buffer.stage * Shared::kRowsBytes + group * 2 * kTileBytes;
  float dk[kSums] = {}, dv[kSums] = {};
  for (int step = header.first_step; step < header.end_step; step += kRows) {
    WaitForPhase(shared.full + consumer.state.stage * 8, consumer.state.parity);
    if (any && step >= begin && step <= header.last) {
      Step(dk, dv, k, keys, problem.scale_log2, step,
           step == begin || step + kRows - 1 > header.first, shared, consumer);
    } else {
      consumer.Pass(shared);
    }
    consumer.state.Advance();
    if (step == header.first_step) consumer.FreeRows();
  }
  WarpgroupWait<0>();
  FenceOperand(dk);
  FenceOperand(dv);
  consumer.Free();
  // In place of k and v, once all warps' products have read them.
  consumer.Sync();
  StoreSums(dk, problem.scale, k, consumer.warp);
  StoreSums(dv, 1.0f, k + kTileBytes, consumer.warp);
  if (consumer.SyncStores()) {
    StoreTile(maps.dk, k, item, begin);
    StoreTile(maps.dv, k + kTileBytes, item, begin);
  }
  consumer.Leave(shared);
}

}  // namespace kernels::cuda::backward_hopper::key_item

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_KEY_CUH_
