#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/cluster_launch.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_gemm.h"
#include "kernels/cuda/relu2_values.cuh"
#include "kernels/cuda/tensor_map.h"

// Where the kernel is compiled for other architectures, as a trap, nothing uses its parts.
#pragma nv_diag_suppress 177

// Blocks stay on their multiprocessor and go from tile to tile. kBlocks of them, a cluster, compute
// 128 x 256 of the output each, one above the other: each loads its own 128 rows of x and its part
// of the 256 columns of w, and TMA writes that part to all, which keeps the reads from
// L2 below what it gives.
//
// In a block one thread of the last warpgroup starts the copies into a ring of kStages places and
// two warpgroups multiply, 64 x 256 each. A tile's outputs, rounded, stay in registers, half as
// many as the sums need, and are stored a few at a time between the products of the next tile,
// which need no thread while they run: so neither stores nor the loads of the gradient's a stop the
// products.
//
// Bytes: x and w come from memory once (tiles go along the output's rows, so that w and the few
// rows of x at work stay in L2), the outputs 4 bytes an element, forward and backward.
namespace kernels::cuda {
namespace {

constexpr int kRows = 128;     // of a block's tile
constexpr int kColumns = 256;  // of a cluster's and of its blocks' tiles
constexpr int kDepth = 64;     // of a stage of the ring: 128 bytes, the swizzle's width
constexpr int kStages = 4;
constexpr int kBlocks = 2;                       // of a cluster
constexpr int kOwnColumns = kColumns / kBlocks;  // of w that a block loads
constexpr int kGroup = 128;                      // threads of a warpgroup
constexpr int kConsumers = 2;                    // warpgroups that multiply
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kProducerRegisters = 24;
constexpr int kXBytes = kRows * kDepth * 2, kWBytes = kColumns * kDepth * 2;
constexpr int kSwizzleAlignment = 1024;
constexpr int kSharedBytes = kSwizzleAlignment + kStages * (kXBytes + kWBytes + 2 * 8);

// How the tile of w lies in memory and in a stage of the ring.
enum class Weights {
  // [n, k]. Of 32 columns of the output, column 8 t + 2 i + e is column 8 i + 2 t + e of the
  // product: so thread t of four, which holds columns 2 t and 2 t + 1 of each 8 of the product,
  // has eight neighbours of the output, 16 bytes, and stores need no exchange between threads.
  kRows,
  kColumns,  // [k, n]: 64 columns by 64 depths, four times
};

struct Problem {
  int64_t m = 0, n = 0;
  int row_tiles = 0, column_tiles = 0;  // of a cluster
  int depth_tiles = 0;
  const BF16* a_in = nullptr;  // of the gradient
  BF16* a_out = nullptr;       // a or da
  BF16* b_out = nullptr;       // forward only
};

// The addresses of a block's shared memory: the same in all blocks of a cluster.
struct Ring {
  __device__ explicit Ring(uint32_t base)
      : x(base), w(x + kStages * kXBytes), full(w + kStages * kWBytes), empty(full + kStages * 8) {}

  uint32_t x, w, full, empty;
};

template <Weights weights>
__device__ __forceinline__ void LoadWeights(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                            int depth, int column) {
  if constexpr (weights == Weights::kRows) {
    LoadPermutedBoxToAll<kBlocks>(map, to, barrier, depth, column / 32);
  } else {
#pragma unroll
    for (int i = 0; i < kOwnColumns / 64; ++i) {
      LoadBoxToAll<kBlocks>(map, to + i * (kWBytes / 4), barrier, column + 64 * i, depth);
    }
  }
}

// One thread. Waits for a stage to be free in all blocks before it writes into all.
template <Weights weights>
__device__ void Produce(const CUtensorMap& x, const CUtensorMap& w, const Problem& problem,
                        const Ring& ring, int cluster, int clusters, int rank) {
  PipelineState<kStages> state;
  const int tiles = problem.row_tiles * problem.column_tiles;
  for (int tile = cluster; tile < tiles; tile += clusters) {
    const int row = (tile / problem.column_tiles * kBlocks + rank) * kRows;
    const int column = tile % problem.column_tiles * kColumns + rank * kOwnColumns;
    for (int depth = 0; depth < problem.depth_tiles; ++depth) {
      const uint32_t full = ring.full + state.stage * 8;
      WaitForPhase(ring.empty + state.stage * 8, state.parity ^ 1);
      ArriveExpecting(full, kXBytes + kWBytes);
      TmaLoad(x, ring.x + state.stage * kXBytes, full, depth * kDepth, row);
      LoadWeights<weights>(w, ring.w + state.stage * kWBytes + rank * (kWBytes / kBlocks), full,
                           depth * kDepth, column);
      state.Advance();
    }
  }
}

// Starts the products of a stage of the ring.
template <Weights weights>
__device__ __forceinline__ void MultiplyStage(float (&c)[kWideSums], uint32_t x, uint32_t w,
                                              bool first) {
  constexpr bool kTransposed = weights == Weights::kColumns;
  const uint64_t x_rows = SmemDescriptor(x, 16, 1024);
  const uint64_t w_rows = SmemDescriptor(w, kTransposed ? kWBytes / 4 : 16, 1024);
  // From 16 depths to the next 16: along the rows, or 16 rows of 128 bytes on.
  constexpr int kWStep = kTransposed ? 16 * 128 / 16 : 32 / 16;
#pragma unroll
  for (int i = 0; i < kDepth / 16; ++i) {
    MultiplyAdd<kTransposed>(c, x_rows + i * (32 / 16), w_rows + i * kWStep, !first || i > 0);
  }
}

// Columns [32 q + 8 t, + 8) of the thread's row g + 8 h, rounded.
template <Weights weights>
__device__ __forceinline__ void Rounded(const float (&c)[kWideSums], int q, int h, int t,
                                        uint32_t (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = 4 * (4 * q + i) + 2 * h;
    v[i] = Bits(__floats2bfloat162_rn(c[at], c[at + 1]));
  }
  if constexpr (weights != Weights::kRows) Transpose4(v, t);
}

constexpr int kQuads = kColumns / 32;  // vectors of 8 columns that a thread has of a row
// A tile's sum is at least as long as there are vectors of a row to move between its products.
constexpr int kMinDepthTiles = kQuads;

// Where a thread's part of a tile is: rows g and g + 8, vectors of 8 columns 32 apart.
struct Part {
  int64_t at = 0;         // of row g's first vector
  int quads[2] = {0, 0};  // vectors of a row that are in the matrix
};

// A thread's part of a tile's a: before it is stored, or, of the gradient, since it was loaded.
using Vectors = uint32_t[kQuads][2][4];

// Vector q of both rows.
template <bool gradient>
__device__ __forceinline__ void Store(int q, const uint32_t (&v)[2][4], const Problem& problem,
                                      const Part& part) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool inside = q < part.quads[h];
    const int64_t at = part.at + 8 * h * problem.n + 32 * q;
    StoreIf(inside, problem.a_out + at, v[h]);
    if constexpr (!gradient) {
      uint32_t b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = Relu2(v[h][i]);
      StoreIf(inside, problem.b_out + at, b);
    }
  }
}

// A warpgroup's view of the ring.
struct Consumer {
  uint32_t x;  // of its rows
  uint32_t w, full;
  uint32_t empty_in_block;  // in the block that this lane tells, if any
  bool tells;
  PipelineState<kStages> state;
  uint32_t last = 0;  // barrier of the stage before
};

// Starts the products of the next stage of the ring.
template <Weights weights>
__device__ __forceinline__ void Start(float (&c)[kWideSums], const Consumer& ring, bool first) {
  WaitForPhase(ring.full + ring.state.stage * 8, ring.state.parity);
  WarpgroupArrive();
  MultiplyStage<weights>(c, ring.x + ring.state.stage * kXBytes,
                         ring.w + ring.state.stage * kWBytes, first);
  WarpgroupCommit();
}

// Frees the stage before, in all blocks, when its products are done.
__device__ __forceinline__ void Free(Consumer& ring, bool first) {
  WarpgroupWait<1>();
  if (!first && ring.tells) ArriveInCluster(ring.last);
  ring.last = ring.empty_in_block + ring.state.stage * 8;
  ring.state.Advance();
}

// The sums of a tile, left in c. Stores the tile before, of which v is, meanwhile; of the gradient
// then loads this tile's a into v.
template <bool gradient, Weights weights>
__device__ __forceinline__ void MultiplyTile(float (&c)[kWideSums], Vectors& v,
                                             const Problem& problem, const Part& before,
                                             const Part& part, Consumer& ring) {
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    Start<weights>(c, ring, q == 0);
    Store<gradient>(q, v[q], problem, before);
    if constexpr (gradient) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        LoadIf(q < part.quads[h], problem.a_in + part.at + 8 * h * problem.n + 32 * q, v[q][h]);
      }
    }
    Free(ring, q == 0);
  }
  for (int depth = kQuads; depth < problem.depth_tiles; ++depth) {
    Start<weights>(c, ring, false);
    Free(ring, false);
  }
  WarpgroupWait<0>();
  if (ring.tells) ArriveInCluster(ring.last);
#pragma unroll
  for (int i = 0; i < kWideSums; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

// A warpgroup's 64 rows of each of the block's tiles.
template <bool gradient, Weights weights>
__device__ void Consume(const Problem& problem, const Ring& shared, int cluster, int clusters,
                        int rank) {
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  const int lane = threadIdx.x % kWarp, t = lane % 4;
  Consumer ring = {shared.x + warp / 4 * (kXBytes / kConsumers),
                   shared.w,
                   shared.full,
                   InBlock(shared.empty, lane % kBlocks),
                   lane < kBlocks,
                   PipelineState<kStages>(),
                   0};
  const int tiles = problem.row_tiles * problem.column_tiles;
  Part before;
  Vectors v = {};
  float c[kWideSums] = {};
  for (int tile = cluster; tile < tiles; tile += clusters) {
    const int64_t row =
        (int64_t{tile / problem.column_tiles} * kBlocks + rank) * kRows + 16 * warp + lane / 4;
    const int column = tile % problem.column_tiles * kColumns;
    const int quads = static_cast<int>(problem.n - column) / 32;
    const Part part = {row * problem.n + column + 8 * t,
                       {row < problem.m ? quads : 0, row + 8 < problem.m ? quads : 0}};
    MultiplyTile<gradient, weights>(c, v, problem, before, part, ring);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t p[4];
        Rounded<weights>(c, q, h, t, p);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[q][h][i] = gradient ? Relu2Grad(p[i], v[q][h][i]) : p[i];
      }
    }
    before = part;
  }
#pragma unroll
  for (int q = 0; q < kQuads; ++q) Store<gradient>(q, v[q], problem, before);
}

template <bool gradient, Weights weights>
__global__ void __launch_bounds__(kThreads, 1)
    Relu2GemmKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                    const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t shared[];
  const Ring ring((SharedOffset(shared) + kSwizzleAlignment - 1) & ~(kSwizzleAlignment - 1));
  const int rank = RankInCluster();
  const int cluster = blockIdx.x / kBlocks, clusters = gridDim.x / kBlocks;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(ring.full + stage * 8, 1);
      // Each warp that multiplies, in all blocks.
      InitBarrier(ring.empty + stage * 8, kBlocks * kConsumers * kGroup / kWarp);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  SyncCluster();
  if (threadIdx.x >= kConsumers * kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x == kConsumers * kGroup) {
      Produce<weights>(x, w, problem, ring, cluster, clusters, rank);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consume<gradient, weights>(problem, ring, cluster, clusters, rank);
  }
  SyncCluster();  // no block ends while another may still write into it
#else
  asm volatile("trap;");
#endif
}

template <Weights weights>
CUtensorMap WeightsMap(const BF16* w, int64_t n, int64_t k) {
  if constexpr (weights == Weights::kRows) {
    return TensorMap<5>(w, {k, 2, 4, 4, n / 32}, {k, 8 * k, 2 * k, 32 * k},
                        {kDepth, 2, 4, 4, kOwnColumns / 32});
  } else {
    return TensorMap<2>(w, {n, k}, {n}, {64, kDepth});
  }
}

template <bool gradient, Weights weights>
void Launch(const BF16* x, const BF16* w, Problem problem, const Relu2GemmShape& shape,
            int sm_count, cudaStream_t stream) {
  CHECK(shape.m > 0 && shape.n % 128 == 0 && shape.k > 0 && shape.k % kDepth == 0)
      << "no product of " << shape.m << " x " << shape.n << " x " << shape.k;
  problem.row_tiles = static_cast<int>(CeilDiv(shape.m, kBlocks * kRows));
  problem.column_tiles = static_cast<int>(CeilDiv(shape.n, kColumns));
  // Beyond k TMA fills x and w with zeros.
  problem.depth_tiles = std::max(static_cast<int>(shape.k / kDepth), kMinDepthTiles);
  const ClusterLaunch launch = {.blocks = kBlocks,
                                .threads = kThreads,
                                .shared_bytes = kSharedBytes,
                                .sm_count = sm_count,
                                .most = problem.row_tiles * problem.column_tiles};
  LaunchClusters(Relu2GemmKernel<gradient, weights>, launch, stream,
                 TensorMap<2>(x, {shape.k, shape.m}, {shape.k}, {kDepth, kRows}),
                 WeightsMap<weights>(w, shape.n, shape.k), problem);
}

template <bool gradient>
void LaunchFor(const BF16* x, const BF16* w, const Problem& problem, const Relu2GemmShape& shape,
               int sm_count, cudaStream_t stream) {
  if (shape.hidden == HiddenDim::kRows) {
    Launch<gradient, Weights::kRows>(x, w, problem, shape, sm_count, stream);
  } else {
    Launch<gradient, Weights::kColumns>(x, w, problem, shape, sm_count, stream);
  }
}

}  // namespace

bool Relu2GemmSupports(const Relu2GemmShape& shape) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major != 9 || shape.m == 0 || shape.n % 128 != 0 || shape.k == 0 || shape.k % kDepth != 0) {
    return false;
  }
  // Compiled for another architecture the kernel is a trap, which needs next to no registers.
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, Relu2GemmKernel<false, Weights::kRows>));
  return attributes.numRegs > kProducerRegisters;
}

void Relu2Gemm(const BF16* x, const BF16* w, BF16* a, BF16* b, const Relu2GemmShape& shape,
               int sm_count, cudaStream_t stream) {
  const Problem problem = {.m = shape.m, .n = shape.n, .a_out = a, .b_out = b};
  LaunchFor<false>(x, w, problem, shape, sm_count, stream);
}

void Relu2GradGemm(const BF16* dy, const BF16* w, const BF16* a, BF16* da,
                   const Relu2GemmShape& shape, int sm_count, cudaStream_t stream) {
  const Problem problem = {.m = shape.m, .n = shape.n, .a_in = a, .a_out = da};
  LaunchFor<true>(dy, w, problem, shape, sm_count, stream);
}

}  // namespace kernels::cuda
