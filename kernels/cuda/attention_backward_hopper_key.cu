// dk and dv on Hopper: see attention_backward_hopper.cu.
//
// A persistent block takes 128 keys of a head after the other. One thread of the last warpgroup
// starts the copies: the block's rows of k and v, two blocks' at a time, then q, do, lse and delta
// 64 queries at a time into a ring. Two warpgroups multiply, 64 keys each. Scores are transposed,
// keys by queries, so that p' and ds' are left factors as they come:
//   s' = k q', p' = exp2(s' - lse), dp' = v do', dv += p' do, ds' = p' * (dp' - delta),
//   dk += ds' q.
#include <algorithm>

#include "kernels/cuda/attention_backward_hopper.cuh"

namespace kernels::cuda::backward_hopper {
namespace {

constexpr int kStages = 3;
constexpr int kBuffers = 2;  // of blocks' rows
constexpr int kStageBytes = 2 * kTileBytes;
constexpr int kRowsBytes = 2 * kConsumers * kTileBytes;

// Addresses of the block's shared memory.
struct Shared {
  __device__ explicit Shared(uint32_t base)
      : rows(base),
        ring(rows + kBuffers * kRowsBytes),
        lse(ring + kStages * kStageBytes),
        delta(lse + kStages * kRows * 4),
        last_query(delta + kStages * kRows * 4),
        rows_full(last_query + kBuffers * kBlockRows * 4),
        rows_empty(rows_full + kBuffers * 8),
        full(rows_empty + kBuffers * 8),
        empty(full + kStages * 8),
        index(empty + kStages * 8) {}

  static constexpr int kBytes = kBuffers * kRowsBytes + kStages * kStageBytes +
                                2 * kStages * kRows * 4 + kBuffers * kBlockRows * 4 +
                                (2 * kBuffers + 2 * kStages) * 8 + kBuffers * 8;

  uint32_t rows;        // tiles of k and v of each warpgroup
  uint32_t ring;        // of tiles of q and do
  uint32_t lse, delta;  // of each place of the ring
  uint32_t last_query;  // of each buffer
  uint32_t rows_full, rows_empty, full, empty;
  uint32_t index;  // of the block that a buffer's rows are of, or kStop
};
static_assert(Shared::kBytes <= 227 * 1024);

// One thread.
__device__ void Produce(const Maps& maps, const Problem& problem, const Shared& shared) {
  Place<kStages> place;
  for (Place<kBuffers> buffer;; buffer.Advance()) {
    const int index = atomicAdd(problem.key_counter, 1);
    const uint32_t rows_full = shared.rows_full + buffer.stage * 8;
    WaitForPhase(shared.rows_empty + buffer.stage * 8, buffer.parity ^ 1);
    if (index >= problem.blocks) {
      StoreShared(shared.index + buffer.stage * 8, kStop);
      Arrive(rows_full);
      return;
    }
    const Block block(problem, index);
    const int rows = Block::Rows(problem, block.begin, kBlockRows);
    const int32_t* last_query = problem.last_query + block.token_offset(problem);
    StoreShared(shared.index + buffer.stage * 8, index);
    ArriveExpecting(rows_full, kRowsBytes + rows * 4);
#pragma unroll
    for (int i = 0; i < kConsumers; ++i) {
      const uint32_t to = shared.rows + buffer.stage * kRowsBytes + i * 2 * kTileBytes;
      LoadTile(maps.k, to, rows_full, block, block.begin + i * kRows);
      LoadTile(maps.v, to + kTileBytes, rows_full, block, block.begin + i * kRows);
    }
    LoadValues(last_query, shared.last_query + buffer.stage * kBlockRows * 4, rows_full, rows);
    const int last = last_query[rows - 1];
    const int64_t row_offset = block.row_offset(problem);
    for (int step = block.begin; step <= last; step += kRows) {
      const uint32_t full = shared.full + place.stage * 8;
      const uint32_t to = shared.ring + place.stage * kStageBytes;
      const int queries = Block::Rows(problem, step, kRows);
      WaitForPhase(shared.empty + place.stage * 8, place.parity ^ 1);
      ArriveExpecting(full, kStageBytes + 2 * queries * 4);
      LoadTile(maps.q, to, full, block, step);
      LoadTile(maps.do_, to + kTileBytes, full, block, step);
      LoadValues(problem.lse + row_offset + step, shared.lse + place.stage * kRows * 4, full,
                 queries);
      LoadValues(problem.delta + row_offset + step, shared.delta + place.stage * kRows * 4, full,
                 queries);
      place.Advance();
    }
  }
}

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

struct Consumer {
  int group, warp;  // warp of the warpgroup's
  bool tells;       // this lane frees places
  Place<kStages> place;
  Place<kBuffers> buffer;
  uint32_t last = 0;  // barrier of the place that the running products read, if any

  __device__ __forceinline__ void Free() {
    if (last != 0 && tells) Arrive(last);
    last = 0;
  }
};

__device__ __forceinline__ void Step(float (&dk)[kSums], float (&dv)[kSums], bool add, uint32_t k,
                                     const Keys& keys, float scale_log2, int step, bool masked,
                                     const Shared& shared, Consumer& consumer) {
  const int stage = consumer.place.stage;
  const uint32_t v = k + kTileBytes;
  const uint32_t q = shared.ring + stage * kStageBytes, do_ = q + kTileBytes;
  float s[kScores], dp[kScores];
  BeginProducts();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    MultiplyRows(s, Rows0(k) + RowsStep(i), Rows0(q) + RowsStep(i), i > 0);
  }
  EndGroup();
  // The step before is done, and its factors' registers are free for dp.
  WaitForProducts<1>();
  consumer.Free();
  BeginProducts();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    MultiplyRows(dp, Rows0(v) + RowsStep(i), Rows0(do_) + RowsStep(i), i > 0);
  }
  EndGroup();
  WaitForProducts<1>();
  Arrived(s);
  const int column = threadIdx.x % 4 * 2;
  const uint32_t at = (stage * kRows + column) * 4;
  Probabilities(s, scale_log2, shared.lse + at);
  WaitForProducts<0>();
  Arrived(dp);
  LeftFactor left_p, left_ds;
  if (masked) {
    Factors<true>(s, dp, keys, step + column, shared.delta + at, left_p, left_ds);
  } else {
    Factors<false>(s, dp, keys, step + column, shared.delta + at, left_p, left_ds);
  }
  BeginProducts();
  MultiplyTile(dv, left_p, do_, add);
  MultiplyTile(dk, left_ds, q, add);
  EndGroup();
  consumer.last = shared.empty + stage * 8;
}

// A warpgroup's 64 keys of each block.
__device__ void Consume(const Problem& problem, const Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int all_warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  Consumer consumer = {all_warp / 4, all_warp % 4, lane == 0, Place<kStages>(), Place<kBuffers>()};
  const int stride = problem.heads * kDim;
  const int in_block = consumer.group * kRows + 16 * consumer.warp + lane / 4;
  for (;; consumer.buffer.Advance()) {
    const int buffer = consumer.buffer.stage;
    WaitForPhase(shared.rows_full + buffer * 8, consumer.buffer.parity);
    const int index = SharedI32(shared.index + buffer * 8);
    if (index == kStop) return;
    const Block block(problem, index);
    const int begin = block.begin + consumer.group * kRows;
    const int rows = Block::Rows(problem, block.begin, kBlockRows);
    const int end = block.begin + rows;
    const uint32_t last_query = shared.last_query + buffer * kBlockRows * 4;
    const Keys keys = {
        block.begin + in_block,
        {SharedI32(last_query + in_block * 4), SharedI32(last_query + (in_block + 8) * 4)}};
    const int block_last = SharedI32(last_query + (rows - 1) * 4);
    // Of the warpgroup's first and last key, if it has any.
    const int first = SharedI32(last_query + (begin - block.begin) * 4);
    const int last = SharedI32(last_query + (min(begin + kRows, end) - 1 - block.begin) * 4);

    const uint32_t k = shared.rows + buffer * kRowsBytes + consumer.group * 2 * kTileBytes;
    float dk[kSums], dv[kSums];
    bool add = false;
    for (int step = block.begin; step <= block_last; step += kRows) {
      WaitForPhase(shared.full + consumer.place.stage * 8, consumer.place.parity);
      if (begin < end && step >= begin && step <= last) {
        Step(dk, dv, add, k, keys, problem.scale_log2, step,
             step == begin || step + kRows - 1 > first, shared, consumer);
        add = true;
      } else {
        // The copies to come may need the place of the step before.
        WaitForProducts<0>();
        consumer.Free();
        if (consumer.tells) Arrive(shared.empty + consumer.place.stage * 8);
      }
      consumer.place.Advance();
    }
    WaitForProducts<0>();
    Arrived(dk);
    Arrived(dv);
    consumer.Free();
    __syncwarp();
    if (consumer.tells) Arrive(shared.rows_empty + buffer * 8);
    const int64_t at =
        (int64_t{block.slot} * problem.tokens + keys.key) * stride + block.head * kDim;
    StoreSums(dk, problem.scale, problem.dk + at, stride, problem.tokens - keys.key);
    StoreSums(dv, 1.0f, problem.dv + at, stride, problem.tokens - keys.key);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    KeyGradHopperKernel(const __grid_constant__ Maps maps,
                        const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(kSwizzleAlignment) uint8_t memory[];
  const Shared shared(SharedOffset(memory));
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      InitBarrier(shared.rows_full + buffer * 8, 1);
      InitBarrier(shared.rows_empty + buffer * 8, kConsumerWarps);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(shared.full + stage * 8, 1);
      InitBarrier(shared.empty + stage * 8, kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (shared.rows % kSwizzleAlignment != 0) asm volatile("trap;");
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

void LaunchKeyGrad(const Maps& maps, const Problem& problem, CudaQueue& queue) {
  CUDA_CHECK(cudaFuncSetAttribute(KeyGradHopperKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Shared::kBytes));
  KeyGradHopperKernel<<<std::min(queue.processors(), problem.blocks), kThreads, Shared::kBytes,
                        queue.stream()>>>(maps, problem);
  CheckLaunch("KeyGradHopperKernel");
}

}  // namespace kernels::cuda::backward_hopper
