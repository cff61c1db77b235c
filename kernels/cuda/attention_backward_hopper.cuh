// What the kernels of attention's backward pass for Hopper share (sm_90a, heads of 128): tiles in
// shared memory, products by a warpgroup, and how a persistent block gets its tiles.
//
// A tile is 64 tokens of a head, bf16: two boxes of 64 columns by 64 rows of 128 bytes, swizzled.
// It serves a product as rows (the sum runs along its columns) or as columns (along its rows).
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_
#define KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_values.cuh"

namespace kernels::cuda::backward_hopper {

constexpr int kDim = 128;
constexpr int kRows = 64;                  // of a tile, a warpgroup and a step
constexpr int kBoxBytes = kRows * 64 * 2;  // 64 columns
constexpr int kTileBytes = 2 * kBoxBytes;  // 128 columns
constexpr int kGroup = 128;                // threads of a warpgroup
constexpr int kConsumers = 2;              // warpgroups that multiply
constexpr int kBlockRows = kConsumers * kRows;
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kConsumerWarps = kConsumers * kGroup / kWarp;
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
constexpr int kSwizzleAlignment = 1024;
constexpr int kStop = -1;  // in place of a tile's number

// Sums that a thread holds of 64 x 64 and of 64 x 128 products. With g = lane / 4, t = lane % 4
// thread of warp w holds in c[4 j + 2 h + e] row 16 w + g + 8 h, column 8 j + 2 t + e.
constexpr int kScores = kRows * kRows / kGroup;
constexpr int kSums = kRows * kDim / kGroup;

// Kernel arguments. Tables and counters are scratch that PrepareKernel fills.
struct Problem {
  int tokens, heads, blocks_per_slot;
  int blocks;  // of 128 tokens of a head, all together
  float scale, scale_log2;
  const int32_t *first_key, *last_query;  // [slots, T]
  int *query_counter, *key_counter;       // the next block nobody works at
  const float *lse, *delta;               // [slots, heads, T]
  BF16 *dq, *dk, *dv;
};

struct Maps {
  CUtensorMap q, k, v, do_;
};

// 128 tokens of a head of a slot. Heads go first, so that blocks at work at the same time read
// the same tokens' rows.
struct Block {
  __device__ Block(const Problem& problem, int index)
      : head(index % problem.heads),
        slot(index / problem.heads / problem.blocks_per_slot),
        begin(index / problem.heads % problem.blocks_per_slot * kBlockRows) {}

  __device__ int64_t token_offset(const Problem& problem) const {  // of tables
    return int64_t{slot} * problem.tokens + begin;
  }
  __device__ int64_t row_offset(const Problem& problem) const {  // of lse and delta
    return (int64_t{slot} * problem.heads + head) * problem.tokens;
  }
  // Rows of the slot's from `first` on, at most `rows`.
  static __device__ int Rows(const Problem& problem, int first, int rows) {
    return min(rows, problem.tokens - first);
  }

  int head, slot, begin;
};

// A place of a ring of `stages` and how often it came round, modulo 2.
template <int stages>
struct Place {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void LoadTile(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                         const Block& block, int token) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to + i * kBoxBytes),
        "l"(&map), "r"(barrier), "r"(block.head * kDim + i * 64), "r"(token), "r"(block.slot)
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

#define KERNELS_SUMS_8(i)                                                                     \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define KERNELS_SUMS_32(i) \
  KERNELS_SUMS_8(i), KERNELS_SUMS_8(i + 8), KERNELS_SUMS_8(i + 16), KERNELS_SUMS_8(i + 24)
#define KERNELS_PLACES_32                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c = x y' + (add ? c : 0), 64 x 64 x 16, both of them rows in shared memory.
__device__ __forceinline__ void MultiplyRows(float (&c)[kScores], uint64_t x, uint64_t y,
                                             bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
      ", %32, %33, p, 1, 1, 0, 0;\n}"
      : KERNELS_SUMS_32(0)
      : "l"(x), "l"(y), "r"(static_cast<int>(add))
      : "memory");
}
// The same, x in registers: as the sums of a 64 x 16 product, in pairs.
__device__ __forceinline__ void MultiplyRows(float (&c)[kScores], const uint32_t (&x)[4],
                                             uint64_t y, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
      ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : KERNELS_SUMS_32(0)
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y), "r"(static_cast<int>(add))
      : "memory");
}
// c = x y + (add ? c : 0), 64 x 128 x 16, x in registers, y of 16 rows in shared memory.
__device__ __forceinline__ void MultiplyColumns(float (&c)[kSums], const uint32_t (&x)[4],
                                                uint64_t y, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
      : KERNELS_SUMS_32(0), KERNELS_SUMS_32(32)
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y), "r"(static_cast<int>(add))
      : "memory");
}

#undef KERNELS_PLACES_32
#undef KERNELS_SUMS_32
#undef KERNELS_SUMS_8

// Descriptors of a tile's columns [16 i, + 16) as rows, and of its rows [16 i, + 16), from those
// of i = 0: addresses count 16 bytes.
__device__ __forceinline__ uint64_t Rows0(uint32_t tile) { return Descriptor(tile, 16, 1024); }
__device__ __forceinline__ uint64_t Columns0(uint32_t tile) {
  return Descriptor(tile, kBoxBytes, 1024);
}
__device__ constexpr int RowsStep(int i) { return (i / 4 * kBoxBytes + i % 4 * 32) / 16; }
__device__ constexpr int ColumnsStep(int i) { return i * 16 * 128 / 16; }

// The left factor of a product with a tile's columns: 64 x 64, rounded.
using LeftFactor = uint32_t[kRows / 16][4];

// Starts c = left * tile + (add ? c : 0).
__device__ __forceinline__ void MultiplyTile(float (&c)[kSums], const LeftFactor& left,
                                             uint32_t tile, bool add) {
  const uint64_t columns = Columns0(tile);
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) {
    MultiplyColumns(c, left[i], columns + ColumnsStep(i), add || i > 0);
  }
}

// Sums are results of the products that were waited for from here on, not before.
template <int n>
__device__ __forceinline__ void Arrived(float (&c)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

// Writes a warpgroup's sums times `factor` to its rows of a head, `to` being the thread's row g;
// `rows` of them from there on exist.
__device__ __forceinline__ void StoreSums(const float (&c)[kSums], float factor, BF16* to,
                                          int stride, int rows) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int q = 0; q < kDim / 32; ++q) {
      uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (4 * q + i) + 2 * h;
        v[i] = PackPair(c[at] * factor, c[at + 1] * factor);
      }
      Transpose4(v, t);
      StoreIf(8 * h < rows, to + int64_t{8 * h} * stride + 32 * q + 8 * t, v);
    }
  }
}

// attention_backward_hopper_query.cu, attention_backward_hopper_key.cu
void LaunchQueryGrad(const Maps& maps, const Problem& problem, CudaQueue& queue);
void LaunchKeyGrad(const Maps& maps, const Problem& problem, CudaQueue& queue);
// Whether the kernels were compiled for sm_90a: else they are a trap.
bool QueryGradCompiled();

}  // namespace kernels::cuda::backward_hopper

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_HOPPER_CUH_
