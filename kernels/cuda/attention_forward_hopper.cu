// softmax(scale q k') v for Hopper (sm_90a) and heads of 128: attention_forward.cu's running
// softmax (Dao et al., 2022), its products by warpgroups out of shared memory that the copy engine
// fills (Shah et al., 2024: FlashAttention-3).
//
// Blocks stay on their multiprocessor and take tile after tile: a head's 192 queries of a slot,
// wherever documents begin and end in them. Three warpgroups have 64 queries each and go at their
// own pace, so that one multiplies while the others are at their softmax. Of the fourth, one warp
// takes the next tile and looks up which keys its queries see, one starts the copies of queries and
// one those of keys and values. A step has 128 keys; a warpgroup leaves out those halves of it of
// which none of its queries sees a key.
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
#include "kernels/cuda/attention_forward_hopper.h"
#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_values.cuh"
#include "kernels/cuda/tensor_map.h"

namespace kernels::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kGroup = 128;        // threads of a warpgroup
constexpr int kGroups = 3;         // warpgroups that multiply
constexpr int kGroupQueries = 64;  // of each
constexpr int kQueries = kGroups * kGroupQueries;
constexpr int kKeys = 128;  // of a step
constexpr int kHalf = kKeys / 2;
constexpr int kThreads = (kGroups + 1) * kGroup;
constexpr int kWarps = kGroups * kGroup / kWarp;  // that multiply
constexpr int kRegisters = 160, kCopyRegisters = 32;
static_assert(kGroup * (kGroups * kRegisters + kCopyRegisters) <= 65536);

// Places in shared memory. Keys and values take turns in theirs. Queries have one to spare.
constexpr int kQueryPlaces = kGroups + 1, kKeyPlaces = 5, kTables = 3;
constexpr int kColumns = 64;  // of a row's part: 128 bytes, the swizzle's width
constexpr int kQueryPart = kGroupQueries * kColumns * 2, kQueryBytes = kGroupQueries * kDim * 2;
constexpr int kKeyPart = kKeys * kColumns * 2, kKeyBytes = kKeys * kDim * 2;
constexpr int kSwizzleAlignment = 1024;

// A tile, and what each of its queries sees.
struct Table {
  int first_query;      // -1: there is no more tile
  int head, slot, end;  // end: of the keys, a multiple of 64 from the first query on
  int first_key[kQueries];

  __device__ int Steps() const { return (end - first_key[0] + kKeys - 1) / kKeys; }
};

struct alignas(kSwizzleAlignment) Shared {
  uint8_t q[kQueryPlaces][kQueryBytes];
  uint8_t keys[kKeyPlaces][kKeyBytes];
  Table tables[kTables];
  uint64_t q_full[kQueryPlaces], q_empty[kQueryPlaces];
  uint64_t keys_full[kKeyPlaces], keys_empty[kKeyPlaces];
  uint64_t table_full[kTables], table_empty[kTables];
};
constexpr int kSharedBytes = sizeof(Shared);
static_assert(kSharedBytes <= 227 * 1024);

struct Problem {
  AttentionProblem attention;
  int row_tiles, tiles;
  int* next;  // tiles taken beside each block's first
};

// One of a ring's places and how often it came round, modulo 2.
template <int places>
struct Place {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++index == places) {
      index = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void Arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedOffset(&barrier)) : "memory");
}
__device__ __forceinline__ void WaitFull(uint64_t& barrier, uint32_t parity) {
  WaitForPhase(SharedOffset(&barrier), parity);
}
__device__ __forceinline__ void WaitEmpty(uint64_t& barrier, uint32_t parity) {
  WaitForPhase(SharedOffset(&barrier), parity ^ 1);
}

// The first boundary behind a token, which is one of low ... high.
__device__ __forceinline__ int FirstBehind(const int32_t* boundaries, int low, int high,
                                           int token) {
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(boundaries + middle) <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// One warp.
__device__ __forceinline__ void FillTable(const AttentionProblem& problem, int row_tiles, int tile,
                                          Table& table) {
  const int lane = threadIdx.x % kWarp;
  const int row_tile = tile / problem.heads;
  const int slot = row_tile / row_tiles;
  const int first = row_tile % row_tiles * kQueries;
  const int rows = min(problem.tokens - first, kQueries);
  const int32_t* boundaries = problem.boundaries + int64_t{slot} * problem.boundary_count;
  // Half of the lanes search for the tile's first query, half for its last.
  const int found = FirstBehind(boundaries, 1, problem.boundary_count - 1,
                                lane < kWarp / 2 ? first : first + rows - 1);
  const int low = __shfl_sync(0xffffffffu, found, 0);
  const int high = __shfl_sync(0xffffffffu, found, kWarp - 1);
#pragma unroll
  for (int i = 0; i < kQueries; i += kWarp) {
    const int query = first + i + lane;
    // Queries behind the slot's end see themselves: as finite as any, and never stored.
    int first_key = query;
    if (query < problem.tokens) {
      first_key = max(__ldg(boundaries + FirstBehind(boundaries, low, high, query) - 1),
                      query - query % problem.window_block - problem.window_reach);
    }
    table.first_key[i + lane] = first_key;
  }
  if (lane == 0) {
    table.first_query = first;
    table.head = tile % problem.heads;
    table.slot = slot;
    table.end = first + (rows + kHalf - 1) / kHalf * kHalf;
  }
}

// One warp: the block's tiles, heads fastest, so that tiles at work share keys.
__device__ void TakeTiles(const Problem& problem, Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  Place<kTables> place;
  for (int tile = blockIdx.x;; place.Advance()) {
    const bool any = tile < problem.tiles;
    int next = 0;
    if (any && lane == 0) next = gridDim.x + atomicAdd(problem.next, 1);
    WaitEmpty(shared.table_empty[place.index], place.parity);
    Table& table = shared.tables[place.index];
    if (any) {
      FillTable(problem.attention, problem.row_tiles, tile, table);
    } else if (lane == 0) {
      table.first_query = -1;
    }
    __syncwarp();
    if (lane == 0) Arrive(shared.table_full[place.index]);
    if (!any) return;
    tile = __shfl_sync(0xffffffffu, next, 0);
  }
}

// Tokens [token, + the box's rows) of a head, in two parts of 64 columns.
__device__ __forceinline__ void LoadTokens(const CUtensorMap& map, uint8_t* to, int part,
                                           uint64_t& barrier, int head, int token, int slot) {
  ArriveExpecting(SharedOffset(&barrier), 2 * part);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    LoadSlotBox(map, SharedOffset(to + i * part), SharedOffset(&barrier),
                head * kDim + i * kColumns, token, slot);
  }
}

// One thread.
__device__ void CopyQueries(const CUtensorMap& q, Shared& shared) {
  Place<kTables> table_place;
  Place<kQueryPlaces> place;
  for (;; table_place.Advance()) {
    WaitFull(shared.table_full[table_place.index], table_place.parity);
    const Table& table = shared.tables[table_place.index];
    const int first = table.first_query, head = table.head, slot = table.slot;
    if (first < 0) return;
    Arrive(shared.table_empty[table_place.index]);
    for (int i = 0; i < kGroups; ++i, place.Advance()) {
      WaitEmpty(shared.q_empty[place.index], place.parity);
      LoadTokens(q, shared.q[place.index], kQueryPart, shared.q_full[place.index], head,
                 first + i * kGroupQueries, slot);
    }
  }
}

// One thread. Steps end where the tile does; the first may begin before the slot, where the copy
// engine gives zeros, as it does behind the slot's end.
__device__ void CopyKeys(const CUtensorMap& k, const CUtensorMap& v, Shared& shared) {
  Place<kTables> table_place;
  Place<kKeyPlaces> place;
  for (;; table_place.Advance()) {
    WaitFull(shared.table_full[table_place.index], table_place.parity);
    const Table& table = shared.tables[table_place.index];
    if (table.first_query < 0) return;
    const int head = table.head, slot = table.slot, end = table.end, steps = table.Steps();
    Arrive(shared.table_empty[table_place.index]);
    for (int key = end - steps * kKeys; key < end; key += kKeys) {
#pragma unroll
      for (int i = 0; i < 2; ++i, place.Advance()) {
        WaitEmpty(shared.keys_empty[place.index], place.parity);
        LoadTokens(i == 0 ? k : v, shared.keys[place.index], kKeyPart,
                   shared.keys_full[place.index], head, key, slot);
      }
    }
  }
}

// Of a thread's two rows g and g + 8 of its warp: outputs and running softmax so far. Columns are
// those of a product (attention_wgmma.cuh).
struct Rows {
  float o[kDim / 2];
  float max[2];  // of q . k; equal in the four threads of a row
  float sum[2];  // of this thread's columns
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
  for (int j = 0; j < keys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& score = s[4 * j + 2 * half + e];
      score = sees[e] >> j & 1 ? score : -INFINITY;
    }
  }
}

// Scores become exp(scale (score - max)), their sums and maxima go into `rows`, and the output so
// far is scaled to the new maxima. A row that has seen no key yet has maximum -infinity.
template <int keys>
__device__ __forceinline__ void Softmax(float scale_log2, float (&s)[keys / 2], Rows& rows) {
  float max[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most[2] = {rows.max[half], rows.max[half]};  // of even and odd columns: shorter chains
#pragma unroll
    for (int j = 0; j < keys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) most[e] = fmaxf(most[e], s[4 * j + 2 * half + e]);
    }
    max[half] = fmaxf(most[0], most[1]);
  }
#pragma unroll
  for (int lanes = 1; lanes <= 2; lanes *= 2) {
#pragma unroll
    for (float& m : max) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, lanes));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float shift = max[half] == -INFINITY ? 0.0f : max[half] * scale_log2;
    const float shrink = Exp2(rows.max[half] * scale_log2 - shift);
    rows.max[half] = max[half];
    float sum[2] = {rows.sum[half] * shrink, 0};
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
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) rows.o[4 * j + 2 * half + e] *= shrink;
    }
  }
}

// A warp's view of its tile and of the ring of keys and values.
struct Consumer {
  int group_query, query;  // first of the warpgroup, of the warp
  const int* first_key;    // of the warp's queries
  uint32_t q;
  uint64_t* q_empty;
  float scale_log2;
  Place<kKeyPlaces> place;
};

// Frees the place when all four warps of all warpgroups have come here.
__device__ __forceinline__ void Free(Consumer& at, Shared& shared) {
  if (threadIdx.x % kWarp == 0) Arrive(shared.keys_empty[at.place.index]);
  at.place.Advance();
}
__device__ __forceinline__ uint32_t Await(const Consumer& at, Shared& shared) {
  WaitFull(shared.keys_full[at.place.index], at.place.parity);
  return SharedOffset(shared.keys[at.place.index]);
}

// Attends to keys [key, key + keys), which are `skipped` keys into the ring's places.
template <int keys>
__device__ __forceinline__ void Attend(int key, int skipped, Consumer& at, Shared& shared,
                                       Rows& rows) {
  float s[keys / 2];
  const uint32_t q = DescriptorLow(at.q, 16);
  const uint32_t k = DescriptorLow(Await(at, shared) + skipped * kColumns * 2, 16);
  BeginProducts();
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    // From 16 columns to the next 16: 32 bytes, or the next part.
    const int column = i % 4 * 32;
    MultiplyScores(s, DescriptorAt(q, i / 4 * kQueryPart + column),
                   DescriptorAt(k, i / 4 * kKeyPart + column), i > 0);
  }
  EndGroup();
  WaitForProducts<0>();
  KeepBehind(s);
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
  Softmax<keys>(at.scale_log2, s, rows);
  uint32_t p[keys / 16][4];
#pragma unroll
  for (int i = 0; i < keys / 4; ++i) p[i / 4][i % 4] = PackPair(s[2 * i], s[2 * i + 1]);

  const uint32_t v = DescriptorLow(Await(at, shared) + skipped * kColumns * 2, kKeyPart);
  BeginProducts();
#pragma unroll
  for (int i = 0; i < keys / 16; ++i) {
    MultiplyValues(rows.o, p[i], DescriptorAt(v, i * 16 * kColumns * 2));
  }
  EndGroup();
  WaitForProducts<0>();
  KeepBehind(rows.o);
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

// Writes the warp's rows. Where another document's value is not finite, 0 times it has made rows
// not finite that do not see it: these are computed again.
__device__ __forceinline__ void Store(const AttentionProblem& problem, const Table& table,
                                      const Consumer& at, Rows& rows) {
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
    lse[half] = rows.max[half] * problem.scale + logf(sum);
    if (t == 0 && inside) problem.lse[head.row_offset + query] = lse[half];
    const float inverse = 1.0f / sum;
    float zero = 0;
    BF16* const to = problem.o + head.offset + int64_t{query} * head.stride + 8 * t;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      uint32_t v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* o = &rows.o[4 * (4 * i + j) + 2 * half];
        zero = fmaf(o[0], 0.0f, fmaf(o[1], 0.0f, zero));
        v[j] = PackPair(o[0] * inverse, o[1] * inverse);
      }
      Transpose4(v, t);
      StoreIf(inside, to + 32 * i, v);
    }
    again[half] = __ballot_sync(0xffffffffu, inside && zero != 0);
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
  Place<kTables> table_place;
  Consumer at;
  at.scale_log2 = problem.scale * kLog2E;
  for (int piece = group;; piece += kGroups, table_place.Advance()) {
    WaitFull(shared.table_full[table_place.index], table_place.parity);
    const Table& table = shared.tables[table_place.index];
    if (table.first_query < 0) return;
    at.group_query = table.first_query + group * kGroupQueries;
    at.query = table.first_query + warp * 16;
    at.first_key = table.first_key + warp * 16;
    const int end = table.end;
    const int first_key = table.first_key[group * kGroupQueries];
    const int q_place = piece % kQueryPlaces;
    at.q = SharedOffset(shared.q[q_place]);
    at.q_empty = &shared.q_empty[q_place];
    Rows rows;
#pragma unroll
    for (float& o : rows.o) o = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.max[half] = -INFINITY;
      rows.sum[half] = 0;
    }
    WaitFull(shared.q_full[q_place], piece / kQueryPlaces % 2);
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
    if (threadIdx.x % kWarp == 0) Arrive(shared.table_empty[table_place.index]);
  }
}

__device__ __forceinline__ void InitBarriers(Shared& shared) {
  const auto init = [](auto& barriers, int arrivals) {
    for (uint64_t& barrier : barriers) InitBarrier(SharedOffset(&barrier), arrivals);
  };
  init(shared.q_full, 1);
  init(shared.q_empty, kGroup / kWarp);
  init(shared.keys_full, 1);
  init(shared.keys_empty, kWarps);
  init(shared.table_full, 1);
  init(shared.table_empty, kWarps + 2);  // and the two threads that start copies
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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

bool AttentionHopperTakes(const AttentionProblem& problem) {
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
  const int blocks = std::min(problem.tiles, queue.processors());
  HopperAttentionKernel<<<blocks, kThreads, kSharedBytes, queue.stream()>>>(
      TokensMap(attention, attention.q, kGroupQueries), TokensMap(attention, attention.k, kKeys),
      TokensMap(attention, attention.v, kKeys), problem);
  CheckLaunch("HopperAttentionKernel");
}

}  // namespace kernels::cuda
