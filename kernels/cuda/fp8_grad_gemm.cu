#include <cuda.h>

#include "kernels/cuda/card_memory.h"
#include "kernels/cuda/cluster_launch.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp8_grad_gemm.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_map.h"

// Where the kernel is compiled for other architectures, as a trap, nothing uses its parts.
#pragma nv_diag_suppress 177

// The tensor cores of Hopper take 8-bit operands from shared memory only with the index that is
// summed over contiguous. That holds for x_t, but in g it is the classes that lie side by side. So
// g goes through registers, where a product may have its left operand: ldmatrix transposes pairs of
// bytes on the way, and one byte permutation a register sorts the pairs.
//
// Blocks stay on their multiprocessor and go from tile to tile. Two of them, a cluster, compute 128
// classes x 192 features of dw each, one above the other, over all rows: each loads its own g and
// half of x_t, which TMA writes to both. In a block one thread of the last warpgroup
// starts the copies into a ring, and two warpgroups multiply, 64 x 192 each.
//
// The tensor cores' accumulator keeps about 14 bits of a sum. As the rows are many, the sums of
// each stage of the ring, 128 rows, are added up in f32 registers beside it, as the library does,
// which is why a tile is not wider. At its power limit the card has little use for more overlap
// than two warpgroups come to by themselves; docs/history/benchmarks.md has what was tried.
namespace kernels::cuda {
namespace {

constexpr int kClasses = 128;   // of a block's tile
constexpr int kFeatures = 192;  // of a cluster's and of its blocks' tiles
constexpr int kDepth = 128;  // rows of a stage of the ring; of x_t 128 bytes, the swizzle's width
constexpr int kStages = 5;
constexpr int kBlocks = 2;                         // of a cluster
constexpr int kOwnFeatures = kFeatures / kBlocks;  // that a block loads
constexpr int kGroup = 128;                        // threads of a warpgroup
constexpr int kConsumers = 2;                      // warpgroups that multiply
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kProducerRegisters = 24;
constexpr int kGBytes = kDepth * kClasses, kXBytes = kFeatures * kDepth;
constexpr int kSwizzleAlignment = 1024;
constexpr int kSharedBytes = kSwizzleAlignment + kStages * (kGBytes + kXBytes + 2 * 8);
constexpr int kSteps = kDepth / 32;   // products of 32 rows in a stage of the ring
constexpr int kSums = kFeatures / 2;  // that a thread holds of 64 x 192
static_assert(kClasses == 128, "a row of g in the ring is as long as the swizzle is wide");

struct Problem {
  float* dw = nullptr;
  float alpha = 0;
  int classes = 0, dim = 0;
  int class_tiles = 0, feature_tiles = 0;  // of a cluster
  int depth_tiles = 0;
};

// The addresses of a block's shared memory: the same in both blocks of a cluster.
struct Ring {
  __device__ explicit Ring(uint32_t base)
      : g(base), x(g + kStages * kGBytes), full(x + kStages * kXBytes), empty(full + kStages * 8) {}

  uint32_t g, x, full, empty;
};

// One thread. Waits for a stage to be free in both blocks before it writes into both.
__device__ void Produce(const CUtensorMap& g, const CUtensorMap& x, const Problem& problem,
                        const Ring& ring, int cluster, int clusters, int rank) {
  PipelineState<kStages> state;
  const int tiles = problem.class_tiles * problem.feature_tiles;
  for (int tile = cluster; tile < tiles; tile += clusters) {
    const int first_class = (tile / problem.feature_tiles * kBlocks + rank) * kClasses;
    const int feature = tile % problem.feature_tiles * kFeatures + rank * kOwnFeatures;
    for (int depth = 0; depth < problem.depth_tiles; ++depth) {
      const uint32_t full = ring.full + state.stage * 8;
      WaitForPhase(ring.empty + state.stage * 8, state.parity ^ 1);
      ArriveExpecting(full, kGBytes + kXBytes);
      TmaLoad(g, ring.g + state.stage * kGBytes, full, first_class, depth * kDepth);
      LoadBoxToAll<kBlocks>(x, ring.x + state.stage * kXBytes + rank * (kXBytes / kBlocks), full,
                            depth * kDepth, feature);
      state.Advance();
    }
  }
}

// Four matrices of 8 rows of 16 bytes, each transposed in units of two bytes.
__device__ __forceinline__ void LoadTransposed(uint32_t address, uint32_t (&v)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}

// How a lane finds its part of g in a stage of the ring. A warp has 16 classes, one vector of 16
// bytes in each row. Lane 8 m + i gives the address of row i of matrix m, and with g = lane / 4, t
// = lane % 4 gets classes 2 g and 2 g + 1 of the matrix's rows 2 t and 2 t + 1. The product wants
// rows 4 t to 4 t + 3 of thread t, in order, from two matrices; which of the two has the first two
// of them differs between t < 2 and the others, so that the eight rows of a matrix are different
// modulo 8 and the swizzle puts them into different banks.
struct Fragments {
  __device__ Fragments(int warp, int lane) {
    const int matrix = lane / 8, t = lane % 8 / 2;
    const int second = (matrix & 1) ^ (t >= 2 ? 1 : 0);
    const int row = matrix / 2 * 16 + 4 * t + 2 * second + lane % 2;
    offset = row * kClasses + ((warp ^ (row & 7)) << 4);
    const bool swapped = lane % 4 >= 2;
    even = swapped ? 0x2064 : 0x6420;
    odd = swapped ? 0x3175 : 0x7531;
  }
  // Of the product of 32 rows: class 2 g as its row g, class 2 g + 1 as its row g + 8.
  __device__ __forceinline__ void Load(uint32_t state, int step, uint32_t (&a)[4]) const {
    uint32_t v[4];
    LoadTransposed(state + offset + step * (32 * kClasses), v);
    a[0] = __byte_perm(v[0], v[1], even);
    a[1] = __byte_perm(v[0], v[1], odd);
    a[2] = __byte_perm(v[2], v[3], even);
    a[3] = __byte_perm(v[2], v[3], odd);
  }

  uint32_t offset;
  uint32_t even, odd;
};

// A thread's sums of a tile: classes first_class and the next one, features feature + 8 j, + 1.
struct Part {
  int first_class, feature;
};

// dw is read and written in batches, so that many reads are under way at once.
constexpr int kBatch = 4;

template <bool transposed>
__device__ __forceinline__ void AddTo(const Problem& problem, const Part& part,
                                      const float (&sums)[kSums]) {
  if (part.first_class >= problem.classes) return;
#pragma unroll
  for (int first = 0; first < kFeatures / 8; first += kBatch) {
    float2 before[kBatch][2];
    const auto at = [&](int j, int i) {
      const int64_t feature = part.feature + 8 * (first + j);
      const int64_t index = transposed ? (feature + i) * problem.classes + part.first_class
                                       : int64_t{part.first_class + i} * problem.dim + feature;
      return reinterpret_cast<float2*>(problem.dw + index);
    };
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (part.feature + 8 * (first + j) >= problem.dim) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) before[j][i] = *at(j, i);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (part.feature + 8 * (first + j) >= problem.dim) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // c[4 j + 2 h + e]: class h, feature e.
        const float* c = sums + 4 * (first + j);
        float2 after = before[j][i];
        after.x = fmaf(problem.alpha, transposed ? c[i] : c[2 * i], after.x);
        after.y = fmaf(problem.alpha, transposed ? c[2 + i] : c[2 * i + 1], after.y);
        *at(j, i) = after;
      }
    }
  }
}

// A warpgroup's 64 classes of each of the block's tiles.
template <bool transposed>
__device__ void Consume(const Problem& problem, const Ring& ring, int cluster, int clusters,
                        int rank) {
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  const int lane = threadIdx.x % kWarp;
  const Fragments fragments(warp, lane);
  const uint32_t empty_in_block = InBlock(ring.empty, lane % kBlocks);
  PipelineState<kStages> state;
  const int tiles = problem.class_tiles * problem.feature_tiles;
  for (int tile = cluster; tile < tiles; tile += clusters) {
    float sums[kSums] = {};
    for (int depth = 0; depth < problem.depth_tiles; ++depth) {
      WaitForPhase(ring.full + state.stage * 8, state.parity);
      uint32_t a[kSteps][4];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) fragments.Load(ring.g + state.stage * kGBytes, i, a[i]);
      float c[kSums];
      const uint64_t x = SmemDescriptor(ring.x + state.stage * kXBytes, 16, 1024);
      WarpgroupArrive();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) MultiplyAddFp8(c, a[i], x + i * (32 / 16), i > 0);
      WarpgroupCommit();
      WarpgroupWait<0>();
      FenceOperand(c);
      if (lane < kBlocks) ArriveInCluster(empty_in_block + state.stage * 8);
      state.Advance();
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] += c[i];
    }
    const Part part = {
        (tile / problem.feature_tiles * kBlocks + rank) * kClasses + 16 * warp + lane / 4 * 2,
        tile % problem.feature_tiles * kFeatures + lane % 4 * 2};
    AddTo<transposed>(problem, part, sums);
  }
}

template <bool transposed>
__global__ void __launch_bounds__(kThreads, 1)
    Fp8GradGemmKernel(const __grid_constant__ CUtensorMap g, const __grid_constant__ CUtensorMap x,
                      const __grid_constant__ Problem problem) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t shared[];
  const Ring ring((SharedOffset(shared) + kSwizzleAlignment - 1) & ~(kSwizzleAlignment - 1));
  const int rank = RankInCluster();
  const int cluster = blockIdx.x / kBlocks, clusters = gridDim.x / kBlocks;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(ring.full + stage * 8, 1);
      // Each warp that multiplies, in both blocks.
      InitBarrier(ring.empty + stage * 8, kBlocks * kConsumers * kGroup / kWarp);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  SyncCluster();
  if (threadIdx.x >= kConsumers * kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x == kConsumers * kGroup) {
      Produce(g, x, problem, ring, cluster, clusters, rank);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consume<transposed>(problem, ring, cluster, clusters, rank);
  }
  SyncCluster();  // no block ends while the other may still write into it
#else
  asm volatile("trap;");
#endif
}

template <bool transposed>
void Launch(const uint8_t* g, const uint8_t* x_t, const Problem& problem,
            const Fp8GradGemmShape& shape, int sm_count, cudaStream_t stream) {
  const ClusterLaunch launch = {.blocks = kBlocks,
                                .threads = kThreads,
                                .shared_bytes = kSharedBytes,
                                .sm_count = sm_count,
                                .most = problem.class_tiles * problem.feature_tiles};
  // Beyond the edges TMA fills with zeros.
  LaunchClusters(Fp8GradGemmKernel<transposed>, launch, stream,
                 TensorMap<2>(g, {shape.classes, shape.rows}, {shape.classes}, {kClasses, kDepth}),
                 TensorMap<2>(x_t, {shape.rows, shape.dim}, {shape.rows}, {kDepth, kOwnFeatures}),
                 problem);
}

}  // namespace

bool Fp8GradGemmSupports(const Fp8GradGemmShape& shape) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major != 9 || !Fp8GradGemmFits(shape.rows, shape.classes, shape.dim)) return false;
  // Compiled for another architecture the kernel is a trap, which needs next to no registers.
  static const bool compiled = [] {
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, Fp8GradGemmKernel<false>));
    return attributes.numRegs > kProducerRegisters;
  }();
  return compiled;
}

void Fp8GradGemm(const uint8_t* g, const uint8_t* x_t, float alpha, float* dw,
                 const Fp8GradGemmShape& shape, int sm_count, cudaStream_t stream) {
  CHECK(Fp8GradGemmFits(shape.rows, shape.classes, shape.dim))
      << "no product of " << shape.classes << " x " << shape.dim << " over " << shape.rows;
  const Problem problem = {
      .dw = dw,
      .alpha = alpha,
      .classes = static_cast<int>(shape.classes),
      .dim = static_cast<int>(shape.dim),
      .class_tiles = static_cast<int>(CeilDiv(shape.classes, kBlocks * kClasses)),
      .feature_tiles = static_cast<int>(CeilDiv(shape.dim, kFeatures)),
      .depth_tiles = static_cast<int>(CeilDiv(shape.rows, kDepth))};
  if (shape.transposed) {
    Launch<true>(g, x_t, problem, shape, sm_count, stream);
  } else {
    Launch<false>(g, x_t, problem, shape, sm_count, stream);
  }
}

}  // namespace kernels::cuda
