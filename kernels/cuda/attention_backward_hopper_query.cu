// dq on Hopper: see attention_backward_hopper.cu.
//
// A persistent block takes 128 queries of a head after the other. One thread of the last
// warpgroup starts the copies: the block's rows of q and do, then k and v 64 keys at a time into a
// ring. Two warpgroups multiply, 64 queries each, with their rows of q and do in registers, so
// that the next block's rows come while this block's products run:
//   s = q k', p = exp2(s - lse), dp = do v', ds = p * (dp - delta), dq += ds k.
#include <algorithm>

#include "kernels/cuda/attention_backward_hopper.cuh"

namespace kernels::cuda::backward_hopper {
namespace {

constexpr int kStages = 4;

// Addresses of the block's shared memory.
struct Shared {
  __device__ explicit Shared(uint32_t base)
      : q(base),
        do_(q + kConsumers * kTileBytes),
        ring(do_ + kConsumers * kTileBytes),
        lse(ring + kStages * 2 * kTileBytes),
        delta(lse + kBlockRows * 4),
        first_key(delta + kBlockRows * 4),
        rows_full(first_key + kBlockRows * 4),
        rows_empty(rows_full + 8),
        full(rows_empty + 8),
        empty(full + kStages * 8),
        index(empty + kStages * 8) {}

  static constexpr int kBytes = (2 * kConsumers + 2 * kStages) * kTileBytes + 3 * kBlockRows * 4 +
                                2 * 8 + 2 * kStages * 8 + 8;

  uint32_t q, do_;  // a tile of each warpgroup
  uint32_t ring;    // of tiles of k and v
  uint32_t lse, delta, first_key;
  uint32_t rows_full, rows_empty, full, empty;
  uint32_t index;  // of the block that the rows are of, or kStop
};

// One thread.
__device__ void Produce(const Maps& maps, const Problem& problem, const Shared& shared) {
  Place<kStages> place;
  uint32_t parity = 1;
  for (;; parity ^= 1) {
    const int index = atomicAdd(problem.query_counter, 1);
    WaitForPhase(shared.rows_empty, parity);
    if (index >= problem.blocks) {
      StoreShared(shared.index, kStop);
      Arrive(shared.rows_full);
      return;
    }
    const Block block(problem, index);
    const int rows = Block::Rows(problem, block.begin, kBlockRows);
    const int32_t* first_key = problem.first_key + block.token_offset(problem);
    StoreShared(shared.index, index);
    ArriveExpecting(shared.rows_full, 2 * kConsumers * kTileBytes + 3 * rows * 4);
#pragma unroll
    for (int i = 0; i < kConsumers; ++i) {
      LoadTile(maps.q, shared.q + i * kTileBytes, shared.rows_full, block, block.begin + i * kRows);
      LoadTile(maps.do_, shared.do_ + i * kTileBytes, shared.rows_full, block,
               block.begin + i * kRows);
    }
    const int64_t at = block.row_offset(problem) + block.begin;
    LoadValues(problem.lse + at, shared.lse, shared.rows_full, rows);
    LoadValues(problem.delta + at, shared.delta, shared.rows_full, rows);
    LoadValues(first_key, shared.first_key, shared.rows_full, rows);
    for (int step = *first_key / kRows * kRows; step < block.begin + rows; step += kRows) {
      const uint32_t full = shared.full + place.stage * 8;
      const uint32_t to = shared.ring + place.stage * 2 * kTileBytes;
      WaitForPhase(shared.empty + place.stage * 8, place.parity ^ 1);
      ArriveExpecting(full, 2 * kTileBytes);
      LoadTile(maps.k, to, full, block, step);
      LoadTile(maps.v, to + kTileBytes, full, block, step);
      place.Advance();
    }
  }
}

// A tile's rows as left factors of all 128 columns.
using Rows = uint32_t[kDim / 16][4];

// `warp` of the warpgroup's.
__device__ __forceinline__ void LoadRows(Rows& rows, uint32_t tile, int warp) {
  const int lane = threadIdx.x % kWarp;
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const int chunk = i % 4 * 2 + lane / 16;
    LoadMatrices<false>(rows[i], tile + i / 4 * kBoxBytes + row * 128 + (chunk ^ (row % 8)) * 16);
  }
}

// Of the thread's rows g and g + 8.
struct RowValues {
  float lse_log2[2], delta[2];
  int first_key[2];
  int row;
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
  WaitForProducts<0>();
  Arrived(dp);
  const int column = step + threadIdx.x % 4 * 2;
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

// One block's sums of a warpgroup.
struct Consumer {
  int group, warp;  // warp of the warpgroup's
  bool tells;       // this lane frees places
  Place<kStages> place;
  uint32_t last = 0;  // barrier of the place that the running products read, if any

  __device__ __forceinline__ void Free() {
    if (last != 0 && tells) Arrive(last);
    last = 0;
  }
};

__device__ __forceinline__ void Step(float (&dq)[kSums], bool first, const Rows& q, const Rows& do_,
                                     const RowValues& rows, float scale_log2, int step, bool masked,
                                     uint32_t k, const Shared& shared, Consumer& consumer) {
  const uint32_t v = k + kTileBytes;
  float s[kScores], dp[kScores];
  BeginProducts();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) MultiplyRows(s, q[i], Rows0(k) + RowsStep(i), i > 0);
  EndGroup();
  // The step before is done, and its factors' registers are free for dp.
  WaitForProducts<1>();
  consumer.Free();
  BeginProducts();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) MultiplyRows(dp, do_[i], Rows0(v) + RowsStep(i), i > 0);
  EndGroup();
  WaitForProducts<1>();
  Arrived(s);
  LeftFactor left;
  if (masked) {
    Slopes<true>(s, dp, rows, scale_log2, step, left);
  } else {
    Slopes<false>(s, dp, rows, scale_log2, step, left);
  }
  BeginProducts();
  MultiplyTile(dq, left, k, !first);
  EndGroup();
  consumer.last = shared.empty + consumer.place.stage * 8;
}

// A warpgroup's 64 queries of each block.
__device__ void Consume(const Problem& problem, const Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int all_warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  Consumer consumer = {all_warp / 4, all_warp % 4, lane == 0, Place<kStages>()};
  const int stride = problem.heads * kDim;
  const int in_block = consumer.group * kRows + 16 * consumer.warp + lane / 4;
  for (uint32_t parity = 0;; parity ^= 1) {
    WaitForPhase(shared.rows_full, parity);
    const int index = SharedI32(shared.index);
    if (index == kStop) return;
    const Block block(problem, index);
    const int begin = block.begin + consumer.group * kRows;
    const int end = block.begin + Block::Rows(problem, block.begin, kBlockRows);
    Rows q, do_;
    LoadRows(q, shared.q + consumer.group * kTileBytes, consumer.warp);
    LoadRows(do_, shared.do_ + consumer.group * kTileBytes, consumer.warp);
    RowValues rows;
    rows.row = block.begin + in_block;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = (in_block + 8 * h) * 4;
      rows.lse_log2[h] = SharedF32(shared.lse + at) * kLog2E;
      rows.delta[h] = SharedF32(shared.delta + at);
      rows.first_key[h] = SharedI32(shared.first_key + at);
    }
    const int block_first = SharedI32(shared.first_key);
    // Of the warpgroup's first and last query, if it has any.
    const int first = SharedI32(shared.first_key + (begin - block.begin) * 4);
    const int last = SharedI32(shared.first_key + (min(begin + kRows, end) - 1 - block.begin) * 4);
    __syncwarp();
    if (consumer.tells) Arrive(shared.rows_empty);

    float dq[kSums];
    bool is_first = true;
    for (int step = block_first / kRows * kRows; step < end; step += kRows) {
      const uint32_t k = shared.ring + consumer.place.stage * 2 * kTileBytes;
      WaitForPhase(shared.full + consumer.place.stage * 8, consumer.place.parity);
      if (begin < end && step <= begin && step + kRows > first) {
        Step(dq, is_first, q, do_, rows, problem.scale_log2, step, step == begin || step < last, k,
             shared, consumer);
        is_first = false;
      } else {
        // The copies to come may need the place of the step before.
        WaitForProducts<0>();
        consumer.Free();
        if (consumer.tells) Arrive(shared.empty + consumer.place.stage * 8);
      }
      consumer.place.Advance();
    }
    WaitForProducts<0>();
    Arrived(dq);
    consumer.Free();
    StoreSums(
        dq, problem.scale,
        problem.dq + (int64_t{block.slot} * problem.tokens + rows.row) * stride + block.head * kDim,
        stride, problem.tokens - rows.row);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    QueryGradHopperKernel(const __grid_constant__ Maps maps,
                          const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(kSwizzleAlignment) uint8_t memory[];
  const Shared shared(SharedOffset(memory));
  if (threadIdx.x == 0) {
    InitBarrier(shared.rows_full, 1);
    InitBarrier(shared.rows_empty, kConsumerWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(shared.full + stage * 8, 1);
      InitBarrier(shared.empty + stage * 8, kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (shared.q % kSwizzleAlignment != 0) asm volatile("trap;");
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x == kConsumers * kGroup) Produce(maps, problem, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consume(problem, shared);
  }
#else
  asm volatile("trap;");
#endif
}

}  // namespace

bool QueryGradCompiled() {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, QueryGradHopperKernel));
  return attributes.numRegs > kProducerRegisters;
}

void LaunchQueryGrad(const Maps& maps, const Problem& problem, CudaQueue& queue) {
  CUDA_CHECK(cudaFuncSetAttribute(QueryGradHopperKernel,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes));
  QueryGradHopperKernel<<<std::min(queue.processors(), problem.blocks), kThreads, Shared::kBytes,
                          queue.stream()>>>(maps, problem);
  CheckLaunch("QueryGradHopperKernel");
}

}  // namespace kernels::cuda::backward_hopper
