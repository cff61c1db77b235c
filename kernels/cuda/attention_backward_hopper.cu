// The backward pass of attention on Hopper, heads of 128. The formulas are those of
// attention_backward.cu (Dao et al., 2022), the way to run them Shah et al., 2024: products by
// warpgroups out of shared memory, copies by a producer.
//
// One persistent kernel, whose items are dq of 128 queries of a head, or dk and dv of 128 keys. So
// p and ds are computed twice, seven products instead of five, and each gradient has one writer
// and one order of summation. The other way, items of keys alone that add dq to f32 sums in the
// order of the keys, saves two products, 4 d = 512 FLOPs for each key that a query sees, and costs
// 4 bytes read and written per element of dq and key block that the query sees: with 300 keys
// seen, five blocks of 128 with their edges, 150 kFLOP, 0.3 ns of the whole GPU's products at 500
// TFLOP/s, against 5 kB, 1 ns of the level 2 cache, per query of a head. It also waits for turns.
//
// Some blocks take items of queries, the others follow with items of keys, so that what one kind
// reads, the other finds in the level 2 cache; when there are no more queries, all take keys.
// Items of queries also compute delta = rowsum(do * o) of their rows; items of keys wait for it
// where they are too early. Nobody waits but for items that are being worked at, and which block
// takes an item changes no bit.
//
// One thread of a block starts all copies, another publishes delta, and two warpgroups multiply,
// 64 rows each. Registers decide the shape: a warpgroup of 64 keys holds dk and dv, 64 + 64 a
// thread, and two 64 x 64 products, 32 + 32.
//
// Masked terms are exactly 0, whatever a masked key or query holds, and nothing is read behind a
// slot's end. But a product with 0 of what is not finite is NaN: as in the portable kernels, NaN or
// infinity in a document may reach documents with tokens in the same 64.
//
// Global memory, bytes per token of a head: 2 d of q, k, v, o, do, dq, dk and dv each, 16 d, and 4
// of lse and delta. What windows let items read again comes from the level 2 cache.
#include <algorithm>

#include "kernels/cuda/attention_backward_hopper.cuh"
#include "kernels/cuda/attention_backward_hopper.h"
#include "kernels/cuda/attention_backward_hopper_key.cuh"
#include "kernels/cuda/attention_backward_hopper_query.cuh"
#include "kernels/cuda/tensor_map.h"

namespace kernels::cuda {
namespace backward_hopper {
namespace {

// Percent of the blocks that take items of queries as long as there are any: somewhat more than
// these need, as the other blocks wait for them and they wait for nobody.
constexpr int kQueryShare = 46;
// The step after whose copies the next item is taken. Their stage was that of the first step's.
constexpr int kTakeStep = kStages;

// An item that was taken, and its steps.
struct Taken {
  int number;  // problem.items or more: there was none
  int first_step, end_step;
};

// One thread: tells the consumers of the item and starts the copies of its own rows.
template <bool kQuery>
__device__ __forceinline__ void ProduceRows(const CUtensorMap (&maps)[2], const Problem& problem,
                                            Taken& taken, const Shared& shared, int buffer) {
  const Item<kQuery> item(problem, taken.number);
  const int begin = item.begin(), end = item.end(problem);
  const uint32_t header = shared.header + buffer * kHeaderBytes;
  StoreShared(header, item.head);
  StoreShared(header + 4, item.slot);
  StoreShared(header + 8, item.block);
  const int32_t* table =
      (kQuery ? problem.first_key : problem.last_query) + item.token_offset(problem);
  const int middle = min(begin + kRows, end);
  const int of_rows[2 * kConsumers] = {table[begin], table[middle - 1], table[min(middle, end - 1)],
                                       table[end - 1]};
#pragma unroll
  for (int i = 0; i < 2 * kConsumers; ++i) StoreShared(header + 20 + i * 4, of_rows[i]);
  taken.first_step = kQuery ? of_rows[0] / kRows * kRows : begin;
  taken.end_step = kQuery ? end : of_rows[2 * kConsumers - 1] + 1;
  StoreShared(header + 12, taken.first_step);
  StoreShared(header + 16, taken.end_step);
  const uint32_t full = shared.rows_full + buffer * 8;
  ArriveExpecting(full, Shared::kRowsBytes);
#pragma unroll
  for (int i = 0; i < 2 * kConsumers; ++i) {
    LoadTile(maps[i % 2], shared.rows + buffer * Shared::kRowsBytes + i * kTileBytes, full, item,
             begin + i / 2 * kRows);
  }
}

// One thread: takes the next item, unless the one before had a number of `last` or more.
template <bool kQuery>
__device__ __forceinline__ Taken Take(const Maps& maps, const Problem& problem, int before,
                                      int last, const Shared& shared,
                                      PipelineState<kBuffers>& buffer) {
  Taken taken = {problem.items, 0, 0};
  if (before < last) {
    taken.number = atomicAdd(problem.counters + (kQuery ? kQueryCounter : kKeyCounter), 1);
  }
  WaitForPhase(shared.rows_empty + buffer.stage * 8, buffer.parity ^ 1);
  if (taken.number < problem.items) {
    ProduceRows<kQuery>(kQuery ? maps.queries : maps.keys, problem, taken, shared, buffer.stage);
  } else {
    StoreShared(shared.header + buffer.stage * kHeaderBytes, kStop);
    Arrive(shared.rows_full + buffer.stage * 8);
  }
  buffer.Advance();
  return taken;
}

// One thread: starts the copies of two tiles to a stage of the ring, and of `queries` of lse and
// delta from `at` on.
template <bool kQuery>
__device__ __forceinline__ void ProduceStep(const CUtensorMap& map0, const CUtensorMap& map1,
                                            const Problem& problem, const Item<kQuery>& item,
                                            int token0, int token1, int queries,
                                            const Shared& shared, PipelineState<kStages>& state) {
  const uint32_t full = shared.full + state.stage * 8;
  const uint32_t to = shared.ring + state.stage * Shared::kStageBytes;
  WaitForPhase(shared.empty + state.stage * 8, state.parity ^ 1);
  ArriveExpecting(full, Shared::kStageBytes + 2 * queries * 4);
  LoadTile(map0, to, full, item, token0);
  LoadTile(map1, to + kTileBytes, full, item, token1);
  if constexpr (!kQuery) {
    const int64_t at = item.row_offset(problem) + token0;
    LoadValues(problem.lse + at, shared.lse + state.stage * kRows * 4, full, queries);
    LoadValues(problem.delta + at, shared.delta + state.stage * kRows * 4, full, queries);
  }
  state.Advance();
}

// Until delta of a block's queries is in memory.
__device__ __forceinline__ void WaitForDelta(const Problem& problem, const Item<false>& item,
                                             int block) {
  const int* from =
      problem.ready + (item.slot * problem.heads + item.head) * problem.blocks + block;
  int ready;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(ready) : "l"(from) : "memory");
  } while (ready == 0);
  // What was seen by ordinary loads comes before what TMA loads from here on.
  asm volatile("fence.proxy.async;" ::: "memory");
}

// One thread. Items of one kind, until they are all given away or one's number is `last` or more.
// The next item's rows are asked for as soon as the products of this one have begun, by which time
// the buffer is free and there are steps enough to come.
template <bool kQuery>
__device__ __forceinline__ void Produce(const Maps& maps, const Problem& problem, int last,
                                        const Shared& shared, PipelineState<kStages>& state,
                                        PipelineState<kBuffers>& buffer) {
  Taken next = Take<kQuery>(maps, problem, 0, last, shared, buffer);
  while (next.number < problem.items) {
    const Taken taken = next;
    const Item<kQuery> item(problem, taken.number);
    const int take_step = taken.first_step + kTakeStep * kRows;
    if constexpr (kQuery) {
      ProduceStep(maps.o, maps.o, problem, item, item.begin(), item.begin() + kRows, 0, shared,
                  state);
    }
    for (int step = taken.first_step; step < taken.end_step; step += kRows) {
      if constexpr (kQuery) {
        ProduceStep(maps.keys[0], maps.keys[1], problem, item, step, step, 0, shared, state);
      } else {
        if (step % kItemRows == 0) WaitForDelta(problem, item, step / kItemRows);
        ProduceStep(maps.queries[0], maps.queries[1], problem, item, step, step,
                    min(kRows, problem.tokens - step), shared, state);
      }
      if (step == take_step) {
        next = Take<kQuery>(maps, problem, taken.number, last, shared, buffer);
      }
    }
    if (take_step >= taken.end_step) {
      next = Take<kQuery>(maps, problem, taken.number, last, shared, buffer);
    }
  }
}

// This and the next two are unused where the kernel is a trap.
//
// One thread. Blocks are numbered as they start, so that of those at work there is always one that
// takes all items of queries it can get, on which items of keys wait.
[[maybe_unused]] __device__ __forceinline__ void Produce(const Maps& maps, const Problem& problem,
                                                         const Shared& shared) {
  PipelineState<kStages> state;
  PipelineState<kBuffers> buffer;
  const int rank = atomicAdd(problem.counters + kBlockCounter, 1);
  const bool of_queries = rank * kQueryShare % 100 < kQueryShare;
  Produce<true>(maps, problem, of_queries ? problem.items : problem.first_items, shared, state,
                buffer);
  Produce<false>(maps, problem, problem.items, shared, state, buffer);
}

// One thread: tells all items of keys when delta of an item's queries is in memory. The wait for
// that would stop a warp that multiplies.
[[maybe_unused]] __device__ __forceinline__ void PublishDelta(const Problem& problem,
                                                              const Shared& shared) {
  PipelineState<kBuffers> buffer;
  for (bool of_queries = true;; buffer.Advance()) {
    WaitForPhase(shared.rows_full + buffer.stage * 8, buffer.parity);
    const uint32_t header = shared.header + buffer.stage * kHeaderBytes;
    const int head = SharedI32(header), slot = SharedI32(header + 4), block = SharedI32(header + 8);
    if (head == kStop && !of_queries) return;
    if (head != kStop && of_queries) {
      WaitForPhase(shared.delta_full + buffer.stage * 8, buffer.parity);
      int* ready = problem.ready + (slot * problem.heads + head) * problem.blocks + block;
      asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(ready), "r"(1) : "memory");
    }
    Arrive(shared.rows_empty + buffer.stage * 8);
    if (head == kStop) of_queries = false;
  }
}

[[maybe_unused]] __device__ __forceinline__ void Consume(const Maps& maps, const Problem& problem,
                                                         const Shared& shared) {
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  Consumer consumer = {warp / 4,
                       warp % 4,
                       Lane() == 0,
                       warp % 4 == 0,
                       PipelineState<kStages>(),
                       PipelineState<kBuffers>()};
  for (;;) {
    const Header header = NextHeader(shared, consumer);
    if (header.head == kStop) break;
    query_item::Consume(maps, problem, Item<true>(header.head, header.slot, header.block), header,
                        shared, consumer);
  }
  consumer.FreeRows();
  consumer.Sync();  // all have read the header
  consumer.Leave(shared);
  for (;;) {
    const Header header = NextHeader(shared, consumer);
    if (header.head == kStop) break;
    key_item::Consume(maps, problem, Item<false>(header.head, header.slot, header.block), header,
                      shared, consumer);
  }
  consumer.FreeRows();  // a block's shared memory lives until it has been copied
}

__global__ void __launch_bounds__(kThreads, 1)
    AttentionGradHopperKernel(const __grid_constant__ Maps maps,
                              const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(kSwizzleAlignment) uint8_t memory[];
  const Shared shared(SharedOffset(memory));
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      InitBarrier(shared.rows_full + buffer * 8, 1);
      InitBarrier(shared.rows_empty + buffer * 8, kConsumers + 1);
      InitBarrier(shared.delta_full + buffer * 8, kConsumerWarps);
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
    const int thread = threadIdx.x - kConsumers * kGroup;
    if (thread == 0) Produce(maps, problem, shared);
    if (thread == kWarp) PublishDelta(problem, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consume(maps, problem, shared);
  }
#else
  asm volatile("trap;");
#endif
}

// What each token sees, and zeros where items are counted.
template <bool kBlocks>
__global__ void __launch_bounds__(kAttentionThreads)
    TablesKernel(const AttentionProblem problem, int32_t* first_key, int32_t* last_query,
                 int* counters, int counter_count) {
  __shared__ int32_t boundaries[kSharedBoundaries];
  const int slot = blockIdx.y;
  const Documents<kBlocks> documents(problem, slot, boundaries);
  const int token = blockIdx.x * kAttentionThreads + threadIdx.x;
  if (token < problem.tokens) {
    const int64_t at = int64_t{slot} * problem.tokens + token;
    first_key[at] = documents.FirstKey(token);
    last_query[at] = documents.LastQuery(token);
  }
  const int thread = (slot * gridDim.x + blockIdx.x) * kAttentionThreads + threadIdx.x;
  for (int i = thread; i < counter_count; i += gridDim.x * gridDim.y * kAttentionThreads) {
    counters[i] = 0;
  }
}

// Whether the kernel was compiled for sm_90a: else it is a trap, which needs few registers.
bool Compiled() {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, AttentionGradHopperKernel));
  return attributes.numRegs > kProducerRegisters;
}

}  // namespace
}  // namespace backward_hopper

namespace {

using backward_hopper::kDim;
using backward_hopper::kItemRows;
using backward_hopper::kRows;

int64_t Aligned(int64_t bytes) { return CeilDiv(bytes, 256) * 256; }

backward_hopper::Maps MakeMaps(const AttentionProblem& problem, const AttentionGradPointers& grad) {
  const int64_t stride = int64_t{problem.heads} * kDim;
  // The slot is a dimension of its own, so that behind its end there are zeros.
  const auto map = [&](const BF16* data) {
    return TensorMap<3>(data, {stride, problem.tokens, problem.slots},
                        {stride, stride * problem.tokens}, {64, kRows, 1});
  };
  return {{map(problem.q), map(grad.do_)},
          {map(problem.k), map(problem.v)},
          map(problem.o),
          map(grad.dq),
          map(grad.dk),
          map(grad.dv)};
}

}  // namespace

bool AttentionGradHopperSupports(const AttentionProblem& problem) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return problem.head_dim == kDim && major == 9 && backward_hopper::Compiled();
}

void LaunchAttentionGradHopper(const AttentionProblem& problem, const AttentionGradPointers& grad,
                               CudaQueue& queue) {
  const int blocks = static_cast<int>(CeilDiv(problem.tokens, kItemRows));
  const int items = problem.slots * problem.heads * blocks;
  const int counters = backward_hopper::kCounters + items;
  const int64_t table = Aligned(int64_t{problem.slots} * problem.tokens * sizeof(int32_t));
  char* scratch = static_cast<char*>(
      queue.Scratch(2 * table + Aligned(counters * static_cast<int64_t>(sizeof(int)))));
  const auto first_key = reinterpret_cast<int32_t*>(scratch);
  const auto last_query = reinterpret_cast<int32_t*>(scratch + table);
  const auto counter = reinterpret_cast<int*>(scratch + 2 * table);
  const auto tables = problem.window_block == 1 ? backward_hopper::TablesKernel<false>
                                                : backward_hopper::TablesKernel<true>;
  const dim3 grid(static_cast<unsigned>(CeilDiv(problem.tokens, kAttentionThreads)), problem.slots);
  tables<<<grid, kAttentionThreads, 0, queue.stream()>>>(problem, first_key, last_query, counter,
                                                         counters);
  CheckLaunch("TablesKernel");

  backward_hopper::Problem shared = {};
  shared.tokens = problem.tokens;
  shared.heads = problem.heads;
  shared.blocks = blocks;
  shared.items = items;
  // The last query that sees one of the first 128 keys.
  const int last = kItemRows - 1 + problem.window_block - 1 + problem.window_reach;
  shared.first_items = std::min(blocks, last / kItemRows + 1) * problem.heads;
  shared.scale = problem.scale;
  shared.scale_log2 = problem.scale * kLog2E;
  shared.first_key = first_key;
  shared.last_query = last_query;
  shared.counters = counter;
  shared.ready = counter + backward_hopper::kCounters;
  shared.lse = problem.lse;
  shared.delta = grad.delta;
  const auto kernel = backward_hopper::AttentionGradHopperKernel;
  constexpr int kBytes = backward_hopper::Shared::kBytes;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<std::min(queue.sm_count(), items), backward_hopper::kThreads, kBytes, queue.stream()>>>(
      MakeMaps(problem, grad), shared);
  CheckLaunch("AttentionGradHopperKernel");
}

}  // namespace kernels::cuda
