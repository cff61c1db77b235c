#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_gemm.h"

// Blocks stay on their multiprocessor and go from tile to tile. Two of them, a cluster, compute
// 256 x 256 of the output, one above the other: each loads its own 128 rows of x and half of the
// 256 columns of w, and the copy engine writes that half to both, which keeps the reads from L2
// below what it gives.
//
// In a block one thread of the last warpgroup starts the copies into a ring of kStages places and
// two warpgroups multiply, 64 x 256 each. They never wait for one another: the one that is ahead,
// by up to the ring's length, is at its epilogue while the other has the tensor cores for itself,
// so that the stores of one hide behind the products of the other.
//
// Bytes: x and w come from memory once (tiles go along the output's rows, so that w and the few
// rows of x at work stay in L2), the outputs 4 bytes an element, forward and backward.
namespace kernels::cuda {
namespace {

constexpr int kRows = 128;     // of a block's tile
constexpr int kColumns = 256;  // of a cluster's and of both of its blocks' tiles
constexpr int kDepth = 64;     // of a place of the ring: 128 bytes, the swizzle's width
constexpr int kStages = 4;
constexpr int kBlocks = 2;     // of a cluster
constexpr int kGroup = 128;    // threads of a warpgroup
constexpr int kConsumers = 2;  // warpgroups that multiply
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kXBytes = kRows * kDepth * 2;
constexpr int kWBytes = kColumns * kDepth * 2;
constexpr int kSwizzleAlignment = 1024;
constexpr int kSharedBytes = kSwizzleAlignment + kStages * (kXBytes + kWBytes + 2 * 8);

// How the tile of w lies in memory and in a place of the ring.
enum class Weights {
  // [n, k]. Of 32 columns of the output, column 8 t + 2 i + e is column 8 i + 2 t + e of the
  // product: so thread t of four, which holds columns 2 t and 2 t + 1 of each 8 of the product,
  // has eight neighbours of the output, 16 bytes, and stores need no exchange between threads.
  kPermutedRows,
  kRows,     // [n, k], in order
  kColumns,  // [k, n]: 64 columns by 64 depths, four times
};

struct Problem {
  int64_t m, n;
  int row_tiles, column_tiles;  // of a cluster
  int depth_tiles;
  const BF16* a_in;  // of the gradient
  BF16* a_out;       // a or da
  BF16* b_out;       // forward only
};

// The addresses of a block's shared memory: the same in both blocks of a cluster.
struct Ring {
  __device__ explicit Ring(uint32_t base)
      : x(base), w(x + kStages * kXBytes), full(w + kStages * kWBytes), empty(full + kStages * 8) {}

  uint32_t x, w, full, empty;
};

// A place of the ring and how often it came round, modulo 2.
struct Place {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <Weights weights>
__device__ __forceinline__ void LoadWeights(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                            int depth, int column) {
  if constexpr (weights == Weights::kPermutedRows) {
    LoadPermutedBoxToBoth(map, to, barrier, depth, column / 32);
  } else if constexpr (weights == Weights::kRows) {
    LoadBoxToBoth(map, to, barrier, depth, column);
  } else {
    LoadBoxToBoth(map, to, barrier, column, depth);
    LoadBoxToBoth(map, to + kWBytes / 4, barrier, column + 64, depth);
  }
}

// One thread. Waits for a place to be free in both blocks before it writes into both.
template <Weights weights>
__device__ void Produce(const CUtensorMap& x, const CUtensorMap& w, const Problem& problem,
                        const Ring& ring, int cluster, int clusters, int rank) {
  Place place;
  const int tiles = problem.row_tiles * problem.column_tiles;
  for (int tile = cluster; tile < tiles; tile += clusters) {
    const int row = (tile / problem.column_tiles * kBlocks + rank) * kRows;
    const int column = tile % problem.column_tiles * kColumns + rank * (kColumns / 2);
    for (int depth = 0; depth < problem.depth_tiles; ++depth) {
      const uint32_t full = ring.full + place.stage * 8;
      WaitForPhase(ring.empty + place.stage * 8, place.parity ^ 1);
      ArriveExpecting(full, kXBytes + kWBytes);
      LoadBox(x, ring.x + place.stage * kXBytes, full, depth * kDepth, row);
      LoadWeights<weights>(w, ring.w + place.stage * kWBytes + rank * (kWBytes / 2), full,
                           depth * kDepth, column);
      place.Advance();
    }
  }
}

// Starts the products of a place of the ring.
template <Weights weights>
__device__ __forceinline__ void MultiplyPlace(float (&c)[kWideSums], uint32_t x, uint32_t w,
                                              bool first) {
  constexpr bool kTransposed = weights == Weights::kColumns;
  const uint64_t x_rows = Descriptor(x, 16, 1024);
  const uint64_t w_rows = Descriptor(w, kTransposed ? kWBytes / 4 : 16, 1024);
  // From 16 depths to the next 16: along the rows, or 16 rows of 128 bytes on.
  constexpr int kWStep = kTransposed ? 16 * 128 / 16 : 32 / 16;
#pragma unroll
  for (int i = 0; i < kDepth / 16; ++i) {
    MultiplyAdd<kTransposed>(c, x_rows + i * (32 / 16), w_rows + i * kWStep, !first || i > 0);
  }
}

// The sums of a tile, left in c. Frees each place in both blocks.
template <Weights weights>
__device__ __forceinline__ void MultiplyTile(float (&c)[kWideSums], const Ring& ring, int group,
                                             int depth_tiles, uint32_t empty_in_block, int lane,
                                             Place& place) {
  const uint32_t x = ring.x + group * (kXBytes / kConsumers);
  uint32_t last = 0;
  for (int depth = 0; depth < depth_tiles; ++depth) {
    WaitForPhase(ring.full + place.stage * 8, place.parity);
    BeginProducts();
    MultiplyPlace<weights>(c, x + place.stage * kXBytes, ring.w + place.stage * kWBytes,
                           depth == 0);
    EndGroup();
    WaitForProducts<1>();  // the place before this one has been read
    if (depth > 0 && lane < kBlocks) ArriveInCluster(last);
    last = empty_in_block + place.stage * 8;
    place.Advance();
  }
  WaitForProducts<0>();
  if (lane < kBlocks) ArriveInCluster(last);
#pragma unroll
  for (int i = 0; i < kWideSums; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

__device__ __forceinline__ __nv_bfloat162 Pair(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}
__device__ __forceinline__ uint32_t Bits(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Four threads hold a 4 x 4 matrix, one a row: transposes it.
__device__ __forceinline__ void Transpose4(uint32_t (&v)[4], int t) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = t & bit;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low_at = bit == 1 ? 2 * pair : pair;
      uint32_t& low = v[low_at];
      uint32_t& other = v[low_at + bit];
      const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? low : other, bit);
      low = high ? got : low;
      other = high ? other : got;
    }
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
  if constexpr (weights != Weights::kPermutedRows) Transpose4(v, t);
}

// max(a, 0)^2, NaN of NaN. The product of two bf16 is rounded once.
__device__ __forceinline__ uint32_t Relu2(uint32_t a) {
  const __nv_bfloat162 positive = __hmax2_nan(Pair(a), Pair(0));
  return Bits(__hmul2_rn(positive, positive));
}

// p * 2 max(a, 0): doubling is exact.
__device__ __forceinline__ uint32_t Relu2Grad(uint32_t p, uint32_t a) {
  const __nv_bfloat162 positive = __hmax2(Pair(a), Pair(0));
  return Bits(__hmul2_rn(Pair(p), __hadd2_rn(positive, positive)));
}

// 16 bytes, if at all. Without a branch, so that the loads and stores of a tile go out in a row.
__device__ __forceinline__ void LoadIf(bool inside, const BF16* from, uint32_t (&v)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])
      : "l"(from), "r"(static_cast<int>(inside))
      : "memory");
}
__device__ __forceinline__ void StoreIf(bool inside, BF16* to, const uint32_t (&v)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(static_cast<int>(inside))
      : "memory");
}

constexpr int kQuads = kColumns / 32;  // vectors of 8 columns that a thread has of a row

// Where a thread's part of a tile is: rows g and g + 8, vectors of 8 columns 32 apart.
struct Part {
  int64_t at;      // of row g's first vector
  bool inside[2];  // the rows
  int quads;       // vectors of a row that are in the matrix
};

// The epilogue. a_in: of the gradient, loaded before.
template <bool gradient, Weights weights>
__device__ __forceinline__ void StoreTile(const float (&c)[kWideSums],
                                          const uint32_t (&a_in)[2][kQuads][4],
                                          const Problem& problem, const Part& part, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row_at = part.at + 8 * h * problem.n;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const bool inside = part.inside[h] && q < part.quads;
      uint32_t a[4], b[4];
      Rounded<weights>(c, q, h, t, a);
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = gradient ? Relu2Grad(a[i], a_in[h][q][i]) : Relu2(a[i]);
      if constexpr (gradient) {
        StoreIf(inside, problem.a_out + row_at + 32 * q, b);
      } else {
        StoreIf(inside, problem.a_out + row_at + 32 * q, a);
        StoreIf(inside, problem.b_out + row_at + 32 * q, b);
      }
    }
  }
}

// A warpgroup's 64 rows of each of the block's tiles.
template <bool gradient, Weights weights>
__device__ void Consume(const Problem& problem, const Ring& ring, int cluster, int clusters,
                        int rank) {
  // The same in a warp, which the compiler cannot see of threadIdx.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarp, 0);
  const int group = warp / 4, lane = threadIdx.x % kWarp, t = lane % 4;
  const uint32_t empty_in_block = InBlock(ring.empty, lane % kBlocks);
  const int tiles = problem.row_tiles * problem.column_tiles;
  Place place;
  for (int tile = cluster; tile < tiles; tile += clusters) {
    const int64_t row =
        (int64_t{tile / problem.column_tiles} * kBlocks + rank) * kRows + 16 * warp + lane / 4;
    const int column = tile % problem.column_tiles * kColumns;
    const Part part = {row * problem.n + column + 8 * t,
                       {row < problem.m, row + 8 < problem.m},
                       static_cast<int>(problem.n - column) / 32};
    uint32_t a_in[2][kQuads][4] = {};
    if constexpr (gradient) {  // arrives behind the products
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
          LoadIf(part.inside[h] && q < part.quads,
                 problem.a_in + part.at + 8 * h * problem.n + 32 * q, a_in[h][q]);
        }
      }
    }
    float c[kWideSums];
    MultiplyTile<weights>(c, ring, group, problem.depth_tiles, empty_in_block, lane, place);
    StoreTile<gradient, weights>(c, a_in, problem, part, t);
  }
}

template <bool gradient, Weights weights>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    Relu2GemmKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                    const __grid_constant__ Problem problem) {
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == kConsumers * kGroup) {
      Produce<weights>(x, w, problem, ring, cluster, clusters, rank);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consume<gradient, weights>(problem, ring, cluster, clusters, rank);
  }
  SyncCluster();  // no block ends while the other may still write into it
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode TensorMapEncoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &result));
    CHECK(result == cudaDriverEntryPointSuccess) << "the driver has no cuTensorMapEncodeTiled";
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

// A box of `box` out of `dims`, innermost first; strides in elements, of dims 1, 2, ... Zeros
// beyond the edges.
template <int rank>
CUtensorMap TensorMap(const BF16* data, const int64_t (&dims)[rank],
                      const int64_t (&strides)[rank - 1], const int (&box)[rank]) {
  cuuint64_t sizes[rank], bytes[rank - 1];
  cuuint32_t boxes[rank], steps[rank];
  for (int i = 0; i < rank; ++i) {
    sizes[i] = dims[i];
    boxes[i] = box[i];
    steps[i] = 1;
    if (i > 0) bytes[i - 1] = strides[i - 1] * sizeof(BF16);
  }
  CUtensorMap map;
  const CUresult result = TensorMapEncoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<BF16*>(data), sizes, bytes, boxes,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result)
                                << " for " << rank << " dims, inner " << dims[0] << " x "
                                << dims[rank - 1];
  return map;
}

template <Weights weights>
CUtensorMap WeightsMap(const BF16* w, int64_t n, int64_t k) {
  if constexpr (weights == Weights::kPermutedRows) {
    return TensorMap<5>(w, {k, 2, 4, 4, n / 32}, {k, 8 * k, 2 * k, 32 * k},
                        {kDepth, 2, 4, 4, kColumns / 2 / 32});
  } else if constexpr (weights == Weights::kRows) {
    return TensorMap<2>(w, {k, n}, {k}, {kDepth, kColumns / 2});
  } else {
    return TensorMap<2>(w, {n, k}, {n}, {64, kDepth});
  }
}

template <bool gradient, Weights weights>
void Launch(const BF16* x, const BF16* w, Problem problem, const Relu2GemmShape& shape,
            int processors, cudaStream_t stream) {
  CHECK(shape.m > 0 && shape.n % 128 == 0 && shape.k % kDepth == 0)
      << "no product of " << shape.m << " x " << shape.n << " x " << shape.k;
  const auto kernel = Relu2GemmKernel<gradient, weights>;
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  problem.row_tiles = static_cast<int>(CeilDiv(shape.m, kBlocks * kRows));
  problem.column_tiles = static_cast<int>(CeilDiv(shape.n, kColumns));
  problem.depth_tiles = static_cast<int>(shape.k / kDepth);
  const int clusters =
      std::min(std::max(processors / kBlocks, 1), problem.row_tiles * problem.column_tiles);
  kernel<<<clusters * kBlocks, kThreads, kSharedBytes, stream>>>(
      TensorMap<2>(x, {shape.k, shape.m}, {shape.k}, {kDepth, kRows}),
      WeightsMap<weights>(w, shape.n, shape.k), problem);
  CheckLaunch("Relu2GemmKernel");
}

template <bool gradient>
void LaunchFor(const BF16* x, const BF16* w, const Problem& problem, const Relu2GemmShape& shape,
               int processors, cudaStream_t stream) {
  if (shape.hidden == HiddenDim::kRows) {
    Launch<gradient, Weights::kPermutedRows>(x, w, problem, shape, processors, stream);
  } else {
    Launch<gradient, Weights::kColumns>(x, w, problem, shape, processors, stream);
  }
}

}  // namespace

bool Relu2GemmTakes(const Relu2GemmShape& shape, int compute_capability_major) {
  return compute_capability_major == 9 && shape.m > 0 && shape.n % 128 == 0 &&
         shape.k % kDepth == 0;
}

void Relu2Gemm(const BF16* x, const BF16* w, BF16* a, BF16* b, const Relu2GemmShape& shape,
               int processors, cudaStream_t stream) {
  Problem problem = {};
  problem.m = shape.m;
  problem.n = shape.n;
  problem.a_out = a;
  problem.b_out = b;
  LaunchFor<false>(x, w, problem, shape, processors, stream);
}

void Relu2GradGemm(const BF16* dy, const BF16* w, const BF16* a, BF16* da,
                   const Relu2GemmShape& shape, int processors, cudaStream_t stream) {
  Problem problem = {};
  problem.m = shape.m;
  problem.n = shape.n;
  problem.a_in = a;
  problem.a_out = da;
  LaunchFor<true>(dy, w, problem, shape, processors, stream);
}

}  // namespace kernels::cuda
