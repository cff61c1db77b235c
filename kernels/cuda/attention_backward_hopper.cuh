// What the parts of attention_backward_hopper.cu share: the work, a block's shared memory, and how
// its warps pass places in it to each other.
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_
#define KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/attention_backward_products.cuh"
#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"

namespace kernels::cuda::backward_hopper {

constexpr int kConsumers = 2;  // warpgroups that multiply
constexpr int kItemRows = kConsumers * kRows;
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kConsumerWarps = kConsumers * kGroup / kWarp;
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
constexpr int kStages = 3;
constexpr int kBuffers = 2;  // of items' own rows
constexpr int kSwizzleAlignment = 1024;

// Kernel arguments. Tables and counters are scratch that TablesKernel fills.
struct Problem {
  int tokens, heads;
  int blocks;       // of 128 tokens of a slot
  int items;        // of queries, and as many of keys
  int first_items;  // of queries, which the first items of keys wait for
  float scale, scale_log2;
  const int32_t *first_key, *last_query;  // [slots, T]
  int* counters;                          // kCounters: how many of each were given away
  int* ready;                             // [slots, heads, blocks], 1: delta is in memory
  const float* lse;                       // [slots, heads, T]
  float* delta;                           // [slots, heads, T]
};
enum Counter { kBlockCounter, kQueryCounter, kKeyCounter, kCounters };

// Of boxes of 64 x 64: of q and do, of k and v, of o, and of the gradients.
struct Maps {
  CUtensorMap queries[2], keys[2], o, dq, dk, dv;
};

// What a block does at a time: dq of 128 queries of a head, or dk and dv of 128 keys. Heads go
// first, so that items at work at the same time read the same tokens' rows.
template <bool kQuery>
struct Item {
  static constexpr bool kIsQuery = kQuery;

  __device__ Item(const Problem& problem, int number)
      : head(number % problem.heads),
        slot(number / problem.heads / problem.blocks),
        block(number / problem.heads % problem.blocks) {}
  __device__ Item(int head, int slot, int block) : head(head), slot(slot), block(block) {}

  __device__ int begin() const { return block * kItemRows; }
  __device__ int end(const Problem& problem) const {
    return min(begin() + kItemRows, problem.tokens);
  }
  __device__ int64_t token_offset(const Problem& problem) const {  // of the slot's tables
    return int64_t{slot} * problem.tokens;
  }
  __device__ int64_t row_offset(const Problem& problem) const {  // of lse and delta
    return (int64_t{slot} * problem.heads + head) * problem.tokens;
  }
  // Of a token in q, k, v, o and their gradients.
  __device__ int64_t offset(const Problem& problem, int token) const {
    return ((int64_t{slot} * problem.tokens + token) * problem.heads + head) * kDim;
  }

  int head, slot, block;
};

// What the producer says of an item, beside its rows. The steps go over the other side's tokens in
// tiles of 64. `first`, `last`: what the first and the last row of the warpgroup see, as queries
// their first key, as keys their last query. Neither ever falls from row to row.
struct Header {
  int head;  // or kStop: no more items of this kind
  int slot, block, first_step, end_step;
  int first, last;
};
constexpr int kStop = -1;
constexpr int kHeaderBytes = 48;  // in shared memory: with first and last of each warpgroup

// Addresses of the block's shared memory.
struct Shared {
  static constexpr int kRowsBytes = kConsumers * 2 * kTileBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;

  __device__ explicit Shared(uint32_t base)
      : rows(base),
        ring(rows + kBuffers * kRowsBytes),
        lse(ring + kStages * kStageBytes),
        delta(lse + kStages * kRows * 4),
        header(delta + kStages * kRows * 4),
        rows_full(header + kBuffers * kHeaderBytes),
        rows_empty(rows_full + kBuffers * 8),
        delta_full(rows_empty + kBuffers * 8),
        full(delta_full + kBuffers * 8),
        empty(full + kStages * 8) {}

  static constexpr int kBytes = kBuffers * kRowsBytes + kStages * kStageBytes +
                                2 * kStages * kRows * 4 + kBuffers * kHeaderBytes +
                                3 * kBuffers * 8 + 2 * kStages * 8;

  uint32_t rows;        // of each warpgroup: tiles of q and do, or of k and v
  uint32_t ring;        // of tiles of the other two; first of a query item's: o of each warpgroup
  uint32_t lse, delta;  // beside tiles of q and do
  uint32_t header;
  // Barriers of each buffer; delta_full: delta of the item's queries is written.
  uint32_t rows_full, rows_empty, delta_full;
  uint32_t full, empty;  // barriers of each stage of the ring
};
static_assert(Shared::kBytes <= 227 * 1024);

template <bool kQuery>
__device__ __forceinline__ void LoadTile(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                         const Item<kQuery>& item, int token) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    TmaLoad(map, to + i * kBoxBytes, barrier, item.head * kDim + i * 64, token, item.slot);
  }
}

// Starts the copy of a tile to memory, of its rows before the slot's end. One thread.
template <bool kQuery>
__device__ __forceinline__ void StoreTile(const CUtensorMap& map, uint32_t from,
                                          const Item<kQuery>& item, int token) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
            "l"(&map),
        "r"(from + i * kBoxBytes), "r"(item.head * kDim + i * 64), "r"(token), "r"(item.slot)
        : "memory");
  }
}

// `count` values of 4 bytes; 16-byte aligned, as is their number.
__device__ __forceinline__ void LoadValues(const void* from, uint32_t to, uint32_t barrier,
                                           int count) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(count * 4), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ float SharedF32(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ int SharedI32(uint32_t address) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ void StoreShared(uint32_t address, int x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

// A warpgroup that multiplies.
struct Consumer {
  int group, warp;  // warp of the warpgroup's
  bool tells;       // this lane frees places
  bool leads;       // this warp frees rows
  PipelineState<kStages> state;
  PipelineState<kBuffers> buffer;
  uint32_t last = 0;  // barrier of the stage that the running products read, if any
  uint32_t left = 0;  // barrier of the rows of the item before, if they are not free

  __device__ __forceinline__ void Free() {
    if (last != 0 && tells) Arrive(last);
    last = 0;
  }
  // A stage of the ring that no products read, or a step that none of the warpgroup's rows sees.
  // All lanes.
  __device__ __forceinline__ void Pass(const Shared& shared) {
    // The copies to come may need the stage of the step before.
    WarpgroupWait<0>();
    Free();
    __syncwarp();
    if (tells) Arrive(shared.empty + state.stage * 8);
  }
  // All threads of the warpgroup, together.
  __device__ __forceinline__ void Sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");
  }
  // After stores to the item's rows in shared memory, before they are copied to memory. True in
  // the thread that starts the copies.
  __device__ __forceinline__ bool SyncStores() const {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    Sync();
    return leads && tells;
  }
  // Nobody needs the item's rows any more but copies to memory that have been started.
  __device__ __forceinline__ void Leave(const Shared& shared) {
    if (leads && tells) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    left = shared.rows_empty + buffer.stage * 8;
    buffer.Advance();
  }
  // Frees the rows of the item before, from which those copies have read meanwhile.
  __device__ __forceinline__ void FreeRows() {
    if (left != 0 && leads && tells) {
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      Arrive(left);
    }
    left = 0;
  }
};

// Of the next item, when its rows are there.
__device__ __forceinline__ Header NextHeader(const Shared& shared, const Consumer& consumer) {
  const int buffer = consumer.buffer.stage;
  WaitForPhase(shared.rows_full + buffer * 8, consumer.buffer.parity);
  const uint32_t at = shared.header + buffer * kHeaderBytes;
  const uint32_t own = at + 20 + consumer.group * 8;
  return {SharedI32(at),      SharedI32(at + 4), SharedI32(at + 8), SharedI32(at + 12),
          SharedI32(at + 16), SharedI32(own),    SharedI32(own + 4)};
}

}  // namespace kernels::cuda::backward_hopper

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_
