// The backward pass of attention on Hopper, heads of 128. The formulas are those of
// attention_backward.cu (Dao et al., 2022), the way to run them Shah et al., 2024: products by
// warpgroups out of shared memory, copies by a producer.
//
// Three kernels: delta and the tables of what a query and a key see; dq by query; dk and dv by
// key. So p and ds are computed twice, seven products instead of five, and each gradient has one
// writer and one order of summation. The other way, one kernel that adds dq to f32 sums in the
// order of the key blocks, saves 4 d = 512 FLOPs for each key that a query sees and costs 4 bytes
// read and written per element of dq and key block that the query sees: with 300 keys seen, five
// blocks of 128 with their edges, 150 kFLOP, 0.3 ns of a multiprocessor-filling product at 500
// TFLOP/s, against 5 kB, 1 ns of the level 2 cache, per query of a head. And blocks wait for
// their turn. Only beyond some thousands of keys does it win.
//
// Registers decide the shape of the tiles: a warpgroup of 64 keys holds dk and dv, 64 + 64 a
// thread, and two 64 x 64 products, 32 + 32.
//
// Global memory, bytes per token of a head: first kernel 2 d of o and do, query kernel 2 d of q, k,
// v, do and dq, key kernel 2 d of q, k, v, do, dk and dv: 26 d. What windows let blocks read again
// comes from the level 2 cache: 2 x 2 d a key for each 128 queries that see it, and the reverse.
#include <algorithm>

#include "kernels/cuda/attention_backward_hopper.cuh"
#include "kernels/cuda/attention_backward_hopper.h"
#include "kernels/cuda/tensor_map.h"

namespace kernels::cuda {
namespace {

using backward_hopper::kDim;

constexpr int kTokensPerBlock = 4 * kAttentionThreads;  // of the tables
constexpr int kLanes = kDim / 8;                        // that share a row
constexpr int kRowsAtOnce = kAttentionThreads / kLanes;
constexpr int kRowsPerThread = 4;

// What the kernels pass on, in scratch.
struct Workspace {
  int32_t *first_key, *last_query;  // [slots, T]
  int* counters;                    // 2
};

// delta of some rows: [slots, T, heads] in the order of memory.
__device__ __forceinline__ void Delta(const AttentionProblem& problem,
                                      const AttentionGradPointers& grad, int block) {
  const int64_t rows = int64_t{problem.slots} * problem.tokens * problem.heads;
  const int64_t first =
      int64_t{block} * kRowsAtOnce * kRowsPerThread + static_cast<int>(threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes;
  BF16x8 o[kRowsPerThread], do_[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int64_t row = first + i * kRowsAtOnce;
    const int64_t at = (row < rows ? row : 0) * kDim + lane * 8;
    o[i] = LoadStreaming8(problem.o + at);
    do_[i] = Load8(grad.do_ + at);
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    float a[8], b[8];
    Unpack(o[i], a);
    Unpack(do_[i], b);
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(a[e], b[e], sum);
    sum = WarpSum<kLanes>(sum);
    const int64_t row = first + i * kRowsAtOnce;
    if (lane == 0 && row < rows) {
      const int head = static_cast<int>(row % problem.heads);
      const int64_t token = row / problem.heads;
      const int64_t slot = token / problem.tokens;
      grad.delta[(slot * problem.heads + head) * problem.tokens + token % problem.tokens] = sum;
    }
  }
}

template <bool kBlocks>
__global__ void __launch_bounds__(kAttentionThreads)
    PrepareKernel(const AttentionProblem problem, const AttentionGradPointers grad,
                  const Workspace workspace, int table_blocks) {
  __shared__ int32_t boundaries[kSharedBoundaries];
  const int block = blockIdx.x;
  if (block >= table_blocks) {
    Delta(problem, grad, block - table_blocks);
    return;
  }
  if (block == 0 && threadIdx.x < 2) workspace.counters[threadIdx.x] = 0;
  const int per_slot = table_blocks / problem.slots;
  const int slot = block / per_slot;
  const Documents<kBlocks> documents(problem, slot, boundaries);
  const int begin = block % per_slot * kTokensPerBlock;
  for (int i = threadIdx.x; i < kTokensPerBlock && begin + i < problem.tokens;
       i += kAttentionThreads) {
    const int64_t at = int64_t{slot} * problem.tokens + begin + i;
    workspace.first_key[at] = documents.FirstKey(begin + i);
    workspace.last_query[at] = documents.LastQuery(begin + i);
  }
}

void Prepare(const AttentionProblem& problem, const AttentionGradPointers& grad,
             const Workspace& workspace, CudaQueue& queue) {
  const int64_t rows = int64_t{problem.slots} * problem.tokens * problem.heads;
  const int table_blocks =
      problem.slots * static_cast<int>(CeilDiv(problem.tokens, kTokensPerBlock));
  const int blocks = table_blocks + static_cast<int>(CeilDiv(rows, kRowsAtOnce * kRowsPerThread));
  const auto kernel = problem.window_block == 1 ? PrepareKernel<false> : PrepareKernel<true>;
  kernel<<<blocks, kAttentionThreads, 0, queue.stream()>>>(problem, grad, workspace, table_blocks);
  CheckLaunch("PrepareKernel");
}

int64_t TableBytes(const AttentionProblem& problem) {
  return CeilDiv(int64_t{problem.slots} * problem.tokens * 4, 256) * 256;
}

// Whether the chip is a Hopper and this was compiled for it.
bool OnHopper() {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9 && backward_hopper::QueryGradCompiled();
}

}  // namespace

bool AttentionGradHopperTakes(const AttentionProblem& problem) {
  return problem.head_dim == kDim && OnHopper();
}

void LaunchAttentionGradHopper(const AttentionProblem& problem, const AttentionGradPointers& grad,
                               CudaQueue& queue) {
  const int64_t table = TableBytes(problem);
  char* scratch = static_cast<char*>(queue.Scratch(2 * table + 256));
  const Workspace workspace = {reinterpret_cast<int32_t*>(scratch),
                               reinterpret_cast<int32_t*>(scratch + table),
                               reinterpret_cast<int*>(scratch + 2 * table)};
  Prepare(problem, grad, workspace, queue);

  const int64_t stride = int64_t{problem.heads} * kDim;
  // The slot is a dimension of its own, so that behind its end there are zeros.
  const auto map = [&](const BF16* data) {
    return TensorMap<3>(data, {stride, problem.tokens, problem.slots},
                        {stride, stride * problem.tokens}, {64, backward_hopper::kRows, 1});
  };
  const backward_hopper::Maps maps = {map(problem.q), map(problem.k), map(problem.v),
                                      map(grad.do_)};
  backward_hopper::Problem shared;
  shared.tokens = problem.tokens;
  shared.heads = problem.heads;
  shared.blocks_per_slot = static_cast<int>(CeilDiv(problem.tokens, backward_hopper::kBlockRows));
  shared.blocks = shared.blocks_per_slot * problem.heads * problem.slots;
  shared.scale = problem.scale;
  shared.scale_log2 = problem.scale * kLog2E;
  shared.first_key = workspace.first_key;
  shared.last_query = workspace.last_query;
  shared.query_counter = workspace.counters;
  shared.key_counter = workspace.counters + 1;
  shared.lse = problem.lse;
  shared.delta = grad.delta;
  shared.dq = grad.dq;
  shared.dk = grad.dk;
  shared.dv = grad.dv;
  backward_hopper::LaunchQueryGrad(maps, shared, queue);
  backward_hopper::LaunchKeyGrad(maps, shared, queue);
}

}  // namespace kernels::cuda
