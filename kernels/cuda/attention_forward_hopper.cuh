// How a block of attention's forward kernel for Hopper (sm_90a) gets its tiles: what lies in shared
// memory, and the three warps that fill it. One takes the next tile and looks up which keys its
// queries see, one starts the copies of queries and one those of keys and values.
#ifndef KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_CUH_
#define KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/hopper.cuh"

namespace kernels::cuda::forward_hopper {

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
constexpr int kQueryStages = kGroups + 1, kKeyStages = 5, kTables = 3;
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
  uint8_t q[kQueryStages][kQueryBytes];
  uint8_t keys[kKeyStages][kKeyBytes];
  Table tables[kTables];
  uint64_t q_full[kQueryStages], q_empty[kQueryStages];
  uint64_t keys_full[kKeyStages], keys_empty[kKeyStages];
  uint64_t table_full[kTables], table_empty[kTables];
};
constexpr int kSharedBytes = sizeof(Shared);
static_assert(kSharedBytes <= 227 * 1024);

struct Problem {
  AttentionProblem attention;
  int row_tiles, tiles;
  int* next;  // tiles taken beside each block's first
};

__device__ __forceinline__ void Arrive(uint64_t& barrier) { cuda::Arrive(SharedOffset(&barrier)); }
__device__ __forceinline__ void WaitFull(uint64_t& barrier, uint32_t parity) {
  WaitForPhase(SharedOffset(&barrier), parity);
}
__device__ __forceinline__ void WaitEmpty(uint64_t& barrier, uint32_t parity) {
  WaitForPhase(SharedOffset(&barrier), parity ^ 1);
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
inline __device__ void TakeTiles(const Problem& problem, Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  PipelineState<kTables> state;
  for (int tile = blockIdx.x;; state.Advance()) {
    const bool any = tile < problem.tiles;
    int next = 0;
    if (any && lane == 0) next = gridDim.x + atomicAdd(problem.next, 1);
    WaitEmpty(shared.table_empty[state.stage], state.parity);
    Table& table = shared.tables[state.stage];
    if (any) {
      FillTable(problem.attention, problem.row_tiles, tile, table);
    } else if (lane == 0) {
      table.first_query = -1;
    }
    __syncwarp();
    if (lane == 0) Arrive(shared.table_full[state.stage]);
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
    TmaLoad(map, SharedOffset(to + i * part), SharedOffset(&barrier), head * kDim + i * kColumns,
            token, slot);
  }
}

// One thread.
inline __device__ void CopyQueries(const CUtensorMap& q, Shared& shared) {
  PipelineState<kTables> table_state;
  PipelineState<kQueryStages> state;
  for (;; table_state.Advance()) {
    WaitFull(shared.table_full[table_state.stage], table_state.parity);
    const Table& table = shared.tables[table_state.stage];
    const int first = table.first_query, head = table.head, slot = table.slot;
    if (first < 0) return;
    Arrive(shared.table_empty[table_state.stage]);
    for (int i = 0; i < kGroups; ++i, state.Advance()) {
      WaitEmpty(shared.q_empty[state.stage], state.parity);
      LoadTokens(q, shared.q[state.stage], kQueryPart, shared.q_full[state.stage], head,
                 first + i * kGroupQueries, slot);
    }
  }
}

// One thread. Steps end where the tile does; the first may begin before the slot, where the copy
// engine gives zeros, as it does behind the slot's end.
inline __device__ void CopyKeys(const CUtensorMap& k, const CUtensorMap& v, Shared& shared) {
  PipelineState<kTables> table_state;
  PipelineState<kKeyStages> state;
  for (;; table_state.Advance()) {
    WaitFull(shared.table_full[table_state.stage], table_state.parity);
    const Table& table = shared.tables[table_state.stage];
    if (table.first_query < 0) return;
    const int head = table.head, slot = table.slot, end = table.end, steps = table.Steps();
    Arrive(shared.table_empty[table_state.stage]);
    for (int key = end - steps * kKeys; key < end; key += kKeys) {
#pragma unroll
      for (int i = 0; i < 2; ++i, state.Advance()) {
        WaitEmpty(shared.keys_empty[state.stage], state.parity);
        LoadTokens(i == 0 ? k : v, shared.keys[state.stage], kKeyPart,
                   shared.keys_full[state.stage], head, key, slot);
      }
    }
  }
}

}  // namespace kernels::cuda::forward_hopper

#endif  // KERNELS_CUDA_ATTENTION_FORWARD_HOPPER_CUH_
