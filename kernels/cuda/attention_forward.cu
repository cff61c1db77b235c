// softmax(scale q k') v in one pass over the keys in sight, with a running softmax in f32
// (Milakov and Gimelshein, 2018; Dao, 2023: FlashAttention-2).
//
// Global memory, bytes per token of a head: 2 d of each of q, k, v and o, and 4 of lse. The keys
// and values of the window before a tile are read again, mostly from the level 2 cache.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/attention_forward_hopper.h"
#include "kernels/cuda/card_memory.h"

namespace kernels::cuda {
namespace {

constexpr int kQueries = 128;  // of a block, 32 of each warp
constexpr int kKeys = 32;      // of a step
constexpr int kStages = 4;     // steps whose keys and values are in shared memory or on the way
constexpr int kRows = 2;       // 16-row matrices of a warp's queries
constexpr int kColumns = kKeys / 8;
static_assert(kQueries == kAttentionThreads);
static_assert(kQueries == kRows * 16 * kAttentionThreads / kWarp);

template <int d>
struct alignas(kTileAlignment) Shared {
  BF16 q[kQueries * d];
  BF16 k[kStages][kKeys * d];
  BF16 v[kStages][kKeys * d];
  int32_t boundaries[kSharedBoundaries];
  int32_t first_key[kQueries];
};

// The running softmax of the rows i * 16 + half * 8 + lane / 4.
struct Running {
  float max[kRows][2];  // of q . k; equal in the four lanes of a row
  float sum[kRows][2];  // of this lane's columns
};

__device__ __forceinline__ float MaxOfRow(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float SumOfRow(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Scores become exp(scale (score - max)), their sums and maxima go into `running`, and the output
// so far is scaled to the new maxima. A row that has seen no key yet has maximum -infinity.
template <int d>
__device__ __forceinline__ void Softmax(float scale_log2, float (&s)[kRows][kColumns][4],
                                        Running& running, float (&o)[kRows][d / 8][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = running.max[i][half];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        max = fmaxf(max, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
      }
      max = MaxOfRow(max);
      const float shift = max == -INFINITY ? 0.0f : max * scale_log2;
      const float shrink = Exp2(running.max[i][half] * scale_log2 - shift);
      running.max[i][half] = max;
      float sum = running.sum[i][half] * shrink;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[i][j][e] = Exp2(fmaf(s[i][j][e], scale_log2, -shift));
          sum += s[i][j][e];
        }
      }
      running.sum[i][half] = sum;
#pragma unroll
      for (int j = 0; j < d / 8; ++j) {
        o[i][j][2 * half] *= shrink;
        o[i][j][2 * half + 1] *= shrink;
      }
    }
  }
}

template <int d, bool kBlocks>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    AttentionKernel(const AttentionProblem problem) {
  extern __shared__ __align__(kTileAlignment) uint8_t shared_memory[];
  Shared<d>& shared = *reinterpret_cast<Shared<d>*>(shared_memory);
  const AttentionHead head(problem, blockIdx.z, blockIdx.x);
  const int tokens = problem.tokens;
  const int tile = blockIdx.y * kQueries;
  const BF16* k = problem.k + head.offset;
  const BF16* v = problem.v + head.offset;

  CopyTile<kQueries, d>(shared.q, problem.q + head.offset, head.stride, tile, tokens);
  const Documents<kBlocks> documents(problem, blockIdx.z, shared.boundaries);
  // Steps begin at multiples of their size, so that one ends where the tile does.
  const int first_step = documents.FirstKey(tile) / kKeys * kKeys;
  const int end = min(tile + kQueries, tokens);
  // One group a step, so that counting groups tells which steps have arrived.
  const auto copy_step = [&](int step, int stage) {
    if (step < end) {
      CopyTile<kKeys, d>(shared.k[stage], k, head.stride, step, tokens);
      CopyTile<kKeys, d>(shared.v[stage], v, head.stride, step, tokens);
    }
    EndCopyGroup();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) copy_step(first_step + i * kKeys, i);
  // Rows behind the slot's end see themselves: as finite as any, and never stored.
  const int own = tile + threadIdx.x;
  shared.first_key[threadIdx.x] = own < tokens ? documents.FirstKey(own) : own;

  const int lane = threadIdx.x % kWarp;
  const int warp_row = threadIdx.x / kWarp * kRows * 16;
  const int first_query = tile + warp_row;

  const float scale_log2 = problem.scale * kLog2E;
  float o[kRows][d / 8][4] = {};
  Running running;
#pragma unroll
  for (int i = 0; i < kRows * 2; ++i) {
    running.max[i / 2][i % 2] = -INFINITY;
    running.sum[i / 2][i % 2] = 0;
  }
  for (int step = first_step, stage = 0; step < end; step += kKeys, stage = (stage + 1) % kStages) {
    WaitForCopyGroups<kStages - 2>();
    // Everybody's copies for this step are there, and nobody reads the stage before it any more.
    __syncthreads();
    copy_step(step + (kStages - 1) * kKeys, (stage + kStages - 1) % kStages);
    // First keys are read again in each step: registers are scarcer.
    const int* first_key = shared.first_key + warp_row;
    if (step >= first_query + kRows * 16 || step + kKeys <= first_key[0]) continue;

    float s[kRows][kColumns][4] = {};
    MultiplyTransposed<d>(s, shared.q + warp_row * d, shared.k[stage]);
    if (step + kKeys - 1 > first_query || step < first_key[kRows * 16 - 1]) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = i * 16 + e / 2 * 8 + lane / 4;
          const int first = first_key[row];
          // Of first <= key <= query, as one comparison.
          const uint32_t span = first_query + row - first;
          const uint32_t key = step + lane % 4 * 2 + e % 2 - first;
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            if (key + j * 8 > span) s[i][j][e] = -INFINITY;
          }
        }
      }
    }
    Softmax<d>(scale_log2, s, running, o);
    uint32_t p[kRows][kKeys / 16][4];
    ToLeftFactor(s, p);
    Multiply<d>(o, p, shared.v[stage]);
  }

  float inverse[kRows][2];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = SumOfRow(running.sum[i][half]);
      inverse[i][half] = 1.0f / sum;
      const int query = first_query + i * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && query < tokens) {
        problem.lse[head.row_offset + query] = running.max[i][half] * problem.scale + logf(sum);
      }
    }
  }
  StoreRows<d>(o, inverse, shared.q + warp_row * d,
               problem.o + head.offset + int64_t{first_query} * head.stride, head.stride,
               tokens - first_query);
}

template <int d, bool kBlocks>
void Launch(const AttentionProblem& problem, CudaQueue& queue) {
  constexpr int kBytes = sizeof(Shared<d>);
  static_assert(kBytes <= (d > 64 ? kAttentionSharedBytes128 : kAttentionSharedBytes64));
  CUDA_CHECK(cudaFuncSetAttribute(AttentionKernel<d, kBlocks>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 grid(problem.heads, CeilDiv(problem.tokens, kQueries), problem.slots);
  AttentionKernel<d, kBlocks><<<grid, kAttentionThreads, kBytes, queue.stream()>>>(problem);
  CheckLaunch("AttentionKernel");
}

template <int d>
void Launch(const AttentionProblem& problem, CudaQueue& queue) {
  if (problem.window_block == 1) {
    Launch<d, false>(problem, queue);
  } else {
    Launch<d, true>(problem, queue);
  }
}

}  // namespace

void LaunchAttentionPortable(const AttentionProblem& problem, CudaQueue& queue) {
  if (problem.head_dim == 64) {
    Launch<64>(problem, queue);
  } else {
    Launch<128>(problem, queue);
  }
}

void LaunchAttention(const AttentionProblem& problem, CudaQueue& queue) {
  if (AttentionHopperSupports(problem)) {
    LaunchAttentionHopper(problem, queue);
  } else {
    LaunchAttentionPortable(problem, queue);
  }
}

}  // namespace kernels::cuda
