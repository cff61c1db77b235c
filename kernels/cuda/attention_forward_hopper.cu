// softmax(scale q k') v for Hopper (sm_90a) and heads of 128: attention_forward.cu's running
// softmax (Dao et al., 2022), its products by warpgroups out of shared memory that TMA
// fills (Shah et al., 2024: FlashAttention-3).
//
// Blocks stay on their multiprocessor and take tile after tile: a head's 192 queries of a slot,
// wherever documents begin and end in them. Three warpgroups have 64 queries each and go at their
// own pace, so that one multiplies while the others are at their softmax. The fourth keeps tiles,
// queries, keys and values coming (attention_forward_hopper.cuh). A step has 128 keys; a warpgroup
// leaves out those halves of it of which none of its queries sees a key.
//
// Which block takes which tile varies from run to run, what becomes of a tile does not.
//
// Global memory, bytes per token of a head: 2 d of each of q, k, v and o, and 4 of lse. From the
// level 2 cache come, per tile, the keys and values of the window before it once more.
#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/attention_forward_hopper.cuh"
#include "kernels/cuda/attention_forward_hopper.h"
#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_values.cuh"
#include "kernels/cuda/tensor_map.h"

namespace kernels::cuda {
namespace {

using namespace forward_hopper;  // NOLINT

// Of a thread's two rows g and g + 8 of its warp: outputs and running softmax so far. Columns are
// those of a product (attention_wgmma.cuh).
struct Rows {
  float o[kDim / 2];
  float shift[2];  // what is taken off q . k: near its maximum; equal in the four threads of a row
  float sum[2];    // of this thread's columns
};

// Scores of keys that a query does not see become -infinity. `first` and `query` are numbers of
// keys from the step's first key on, less the thread's first column.
template <int keys>
__device__ __forceinline__ void Mask(float (&s)[keys / 2], int half, int first, int query) {
  // Bit j: column 8 j + e is one of first ... query.
  const auto below = [](int columns) {
    return (1u << min(max((columns + 7) >> 3, 0), keys / 8)) - 1;
  };
  uint32_t sees[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) sees[e] = below(query - e + 1) & ~below(first - e);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    // A few bits at a time: the compiler moves those to predicates at once.
    constexpr int kBits = 8;
#pragma unroll
    for (int begin = 0; begin < keys / 8; begin += kBits) {
      const uint32_t bits = sees[e] >> begin;
#pragma unroll
      for (int j = begin; j < begin + kBits && j < keys / 8; ++j) {
        float& score = s[4 * j + 2 * half + e];
        score = (bits & 1u << (j - begin)) != 0 ? score : -INFINITY;
      }
    }
  }
}

// By how many powers of two a probability may exceed 1 before the row's shift follows its maximum.
constexpr float kSlack = 8;

__device__ __forceinline__ void MaxOfRows(float (&max)[2]) {
#pragma unroll
  for (int lanes = 1; lanes <= 2; lanes *= 2) {
#pragma unroll
    for (float& m : max) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, lanes));
  }
}

// Scores become exp(scale (score - shift)), their sums go into `rows`. The shift follows the
// maximum only when it must, so that the outputs so far are seldom to be scaled; before the `first`
// step there are none. A row that has seen no key yet has shift -infinity.
template <int keys>
__device__ __forceinline__ void Softmax(float scale_log2, bool first, float (&s)[keys / 2],
                                        Rows& rows) {
  float max[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most[2] = {-INFINITY, -INFINITY};  // of even and odd columns: shorter chains
#pragma unroll
    for (int j = 0; j < keys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) most[e] = fmaxf(most[e], s[4 * j + 2 * half + e]);
    }
    max[half] = fmaxf(most[0], most[1]);
  }
  MaxOfRows(max);
  bool follows[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    follows[half] = (max[half] - rows.shift[half]) * scale_log2 > kSlack;
  }
  if (__any_sync(0xffffffffu, follows[0] || follows[1])) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!follows[half]) max[half] = rows.shift[half];
      const float shrink = follows[half] ? Exp2((rows.shift[half] - max[half]) * scale_log2) : 1.0f;
      rows.shift[half] = max[half];
      rows.sum[half] *= shrink;
      if (first) continue;
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) rows.o[4 * j + 2 * half + e] *= shrink;
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float shift = rows.shift[half] == -INFINITY ? 0.0f : rows.shift[half] * scale_log2;
    float sum[2] = {rows.sum[half], 0};
#pragma unroll
    for (int j = 0; j < keys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = s[4 * j + 2 * half + e];
        p = Exp2(fmaf(p, scale_log2, -shift));
        sum[e] += p;
      }
    }
    rows.sum[half] = sum[0] + sum[1];
  }
}

// A warp's view of its tile and of the ring of keys and values.
struct Consumer {
  int group_query, query;  // first of the warpgroup, of the warp
  const int* first_key;    // of the warp's queries
  uint32_t q;
  uint64_t* q_empty;
  bool first;  // no step yet: `o` is not set
  float scale_log2;
  PipelineState<kKeyStages> state;
};

// Frees the stage when all four warps of all warpgroups have come here.
__device__ __forceinline__ void Free(Consumer& at, Shared& shared) {
  if (threadIdx.x % kWarp == 0) Arrive(shared.keys_empty[at.state.stage]);
  at.state.Advance();
}
__device__ __forceinline__ uint32_t Await(const Consumer& at, Shared& shared) {
  WaitFull(shared.keys_full[at.state.stage], at.state.parity);
  return SharedOffset(shared.keys[at.state.stage]);
}

// Attends to keys [key, key + keys), which are `skipped` keys into the ring's places.
template <int keys>
__device__ __forceinline__ void Attend(int key, int skipped, Consumer& at, Shared& shared,
                                       Rows& rows) {
  float s[keys / 2];
  const uint32_t q = DescriptorLow(at.q, 16);
  const uint32_t k = DescriptorLow(Await(at, shared) + skipped * kColumns * 2, 16);
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    // From 16 columns to the next 16: 32 bytes, or the next part.
    const int column = i % 4 * 32;
    WgmmaQK(s, SmemDescriptorAt(q, i / 4 * kQueryPart + column),
            SmemDescriptorAt(k, i / 4 * kKeyPart + column), i > 0);
  }
  WarpgroupCommit();
  WarpgroupWait<0>();
  FenceOperand(s);
  Free(at, shared);
  if (key + keys > at.group_query && threadIdx.x % kWarp == 0) Arrive(*at.q_empty);

  const int lane = threadIdx.x % kWarp, g = lane / 4;
  if (key + keys - 1 > at.query || key < at.first_key[15]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half, origin = key + lane % 4 * 2;
      Mask<keys>(s, half, at.first_key[row] - origin, at.query + row - origin);
    }
  }
  Softmax<keys>(at.scale_log2, at.first, s, rows);
  uint32_t p[keys / 16][4];
#pragma unroll
  for (int i = 0; i < keys / 4; ++i) p[i / 4][i % 4] = PackPair(s[2 * i], s[2 * i + 1]);

  const uint32_t v = DescriptorLow(Await(at, shared) + skipped * kColumns * 2, kKeyPart);
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < keys / 16; ++i) {
    MultiplyValues(rows.o, p[i], SmemDescriptorAt(v, i * 16 * kColumns * 2), !at.first || i > 0);
  }
  WarpgroupCommit();
  at.first = false;
  WarpgroupWait<0>();
  FenceOperand(rows.o);
  Free(at, shared);
}

// A row again, from the keys that it sees alone and one at a time, by a warp.
__device__ __noinline__ void RepeatRow(const AttentionProblem& problem, int64_t q_at,
                                       int64_t key_at, int keys, int stride, float lse) {
  const int column = threadIdx.x % kWarp * 4;
  float o[4] = {};
  for (int64_t at = key_at + column, i = 0; i < keys; ++i, at += stride) {
    float score = 0;
    for (int e = 0; e < 4; ++e) {
      score += ToF32(problem.q[q_at + column + e]) * ToF32(problem.k[at + e]);
    }
    const float p = Exp2((WarpSum(score) * problem.scale - lse) * kLog2E);
    for (int e = 0; e < 4; ++e) o[e] += p * ToF32(problem.v[at + e]);
  }
  for (int e = 0; e < 4; ++e) problem.o[q_at + column + e] = Round(o[e]);
}

// Neighbouring lanes t and t + 1 hold columns 2 t ... 2 t + 3 of two 8-column chunks, two columns
// a chunk each. Now each holds four columns of one: the even lane of the first chunk.
__device__ __forceinline__ void Exchange(uint32_t& first, uint32_t& second, bool odd) {
  const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
  first = odd ? got : first;
  second = odd ? second : got;
}

// Writes the warp's rows. Where another document's value is not finite, 0 times it has made rows
// not finite that do not see it: these are computed again.
__device__ __forceinline__ void Store(const AttentionProblem& problem, const Table& table,
                                      const Consumer& at, const Rows& rows) {
  const AttentionHead head(problem, table.slot, table.head);
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float lse[2];
  uint32_t again[2];  // four bits of a row: whether its threads' columns are not finite
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = at.query + g + 8 * half;
    const bool inside = query < problem.tokens;
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    lse[half] = rows.shift[half] * problem.scale + logf(sum);
    if (t == 0 && inside) problem.lse[head.row_offset + query] = lse[half];
    const float inverse = 1.0f / sum;
    __nv_bfloat162 zero = Pair(0);
    BF16* const to = problem.o + head.offset + int64_t{query} * head.stride + t % 2 * 8 + t / 2 * 4;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const float* o = &rows.o[8 * i + 2 * half];
      uint2 v = {PackPair(o[0] * inverse, o[1] * inverse),
                 PackPair(o[4] * inverse, o[5] * inverse)};
      zero = __hfma2(Pair(v.x), Pair(0), __hfma2(Pair(v.y), Pair(0), zero));
      Exchange(v.x, v.y, t % 2);
      if (inside) *reinterpret_cast<uint2*>(to + 16 * i) = v;
    }
    again[half] = __ballot_sync(0xffffffffu, inside && (Bits(zero) & 0x7fff7fff) != 0);
  }
  if ((again[0] | again[1]) == 0) return;
  __syncwarp();  // orders the stores of a row
  for (int row = 0; row < 16; ++row) {
    const float row_lse = __shfl_sync(0xffffffffu, row < 8 ? lse[0] : lse[1], row % 8 * 4);
    if ((again[row / 8] >> row % 8 * 4 & 15) == 0) continue;
    const int query = at.query + row, first = at.first_key[row];
    RepeatRow(problem, head.offset + int64_t{query} * head.stride,
              head.offset + int64_t{first} * head.stride, query - first + 1, head.stride, row_lse);
  }
}

// A warpgroup's 64 queries of each of the block's tiles.
__device__ __forceinline__ void Consume(const AttentionProblem& problem, Shared& shared) {
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  const int group = warp / 4;
  PipelineState<kTables> table_state;
  Consumer at;
  at.scale_log2 = problem.scale * kLog2E;
  for (int piece = group;; piece += kGroups, table_state.Advance()) {
    WaitFull(shared.table_full[table_state.stage], table_state.parity);
    const Table& table = shared.tables[table_state.stage];
    if (table.first_query < 0) return;
    at.group_query = table.first_query + group * kGroupQueries;
    at.query = table.first_query + warp * 16;
    at.first_key = table.first_key + warp * 16;
    const int end = table.end;
    const int first_key = table.first_key[group * kGroupQueries];
    const int q_place = piece % kQueryStages;
    at.q = SharedOffset(shared.q[q_place]);
    at.q_empty = &shared.q_empty[q_place];
    Rows rows;
    at.first = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.shift[half] = -INFINITY;
      rows.sum[half] = 0;
    }
    WaitFull(shared.q_full[q_place], piece / kQueryStages % 2);
    const auto needed = [&](int key) {
      return key <= at.group_query && key + kHalf > first_key && key < end;
    };
    for (int key = end - table.Steps() * kKeys; key < end; key += kKeys) {
      const bool low = needed(key), high = needed(key + kHalf);
      if (low && high) {
        Attend<kKeys>(key, 0, at, shared, rows);
      } else if (low || high) {
        const int skipped = low ? 0 : kHalf;
        Attend<kHalf>(key + skipped, skipped, at, shared, rows);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Await(at, shared);
          Free(at, shared);
        }
      }
    }
    if (at.group_query >= end && threadIdx.x % kWarp == 0) Arrive(*at.q_empty);
    Store(problem, table, at, rows);
    __syncwarp();
    if (threadIdx.x % kWarp == 0) Arrive(shared.table_empty[table_state.stage]);
  }
}

// Unused where the kernel is a trap.
[[maybe_unused]] __device__ __forceinline__ void RunBlock(const CUtensorMap& q,
                                                          const CUtensorMap& k,
                                                          const CUtensorMap& v,
                                                          const Problem& problem) {
  extern __shared__ __align__(kSwizzleAlignment) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (SharedOffset(memory) % kSwizzleAlignment != 0) asm volatile("trap;");
  if (threadIdx.x == 0) InitBarriers(shared);
  __syncthreads();
  if (threadIdx.x < kGroups * kGroup) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    Consume(problem.attention, shared);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0) - kWarps;
    const bool first_lane = threadIdx.x % kWarp == 0;
    if (warp == 0) {
      TakeTiles(problem, shared);
    } else if (warp == 1 && first_lane) {
      CopyKeys(k, v, shared);
    } else if (warp == 2 && first_lane) {
      CopyQueries(q, shared);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    HopperAttentionKernel(const __grid_constant__ CUtensorMap q,
                          const __grid_constant__ CUtensorMap k,
                          const __grid_constant__ CUtensorMap v,
                          const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  RunBlock(q, k, v, problem);
#else
  asm volatile("trap;");
#endif
}

CUtensorMap TokensMap(const AttentionProblem& problem, const BF16* data, int rows) {
  const int64_t width = int64_t{problem.heads} * kDim;
  return TensorMap<3>(data, {width, problem.tokens, problem.slots}, {width, width * problem.tokens},
                      {kColumns, rows, 1});
}

}  // namespace

bool AttentionHopperSupports(const AttentionProblem& problem) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major != 9 || problem.head_dim != kDim) return false;
  // Compiled for another architecture the kernel is a trap, which needs next to no registers.
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, HopperAttentionKernel));
  return attributes.numRegs > kCopyRegisters;
}

void LaunchAttentionHopper(const AttentionProblem& attention, CudaQueue& queue) {
  const int row_tiles = static_cast<int>(CeilDiv(attention.tokens, kQueries));
  const int64_t tiles = int64_t{row_tiles} * attention.slots * attention.heads;
  CHECK(tiles < 1 << 30) << "Attention: " << tiles << " tiles are too many for one pass";
  const Problem problem = {attention, row_tiles, static_cast<int>(tiles),
                           static_cast<int*>(queue.Scratch(sizeof(int)))};
  CUDA_CHECK(cudaMemsetAsync(problem.next, 0, sizeof(int), queue.stream()));
  CUDA_CHECK(cudaFuncSetAttribute(HopperAttentionKernel,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const int blocks = std::min(problem.tiles, queue.sm_count());
  HopperAttentionKernel<<<blocks, kThreads, kSharedBytes, queue.stream()>>>(
      TokensMap(attention, attention.q, kGroupQueries), TokensMap(attention, attention.k, kKeys),
      TokensMap(attention, attention.v, kKeys), problem);
  CheckLaunch("HopperAttentionKernel");
}

}  // namespace kernels::cuda
