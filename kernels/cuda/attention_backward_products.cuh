// Tiles of attention's backward pass for Hopper, and products of them by a warpgroup (sm_90a).
//
// A tile is 64 tokens of a head of 128, bf16: two boxes of 64 columns by 64 rows of 128 bytes,
// swizzled. It serves a product as rows (the sum runs along its columns) or as columns (along its
// rows).
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_PRODUCTS_CUH_
#define KERNELS_CUDA_ATTENTION_BACKWARD_PRODUCTS_CUH_

#include <cstdint>

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/relu2_values.cuh"

namespace kernels::cuda::backward_hopper {

constexpr int kDim = 128;
constexpr int kRows = 64;                  // of a tile, a warpgroup and a step
constexpr int kBoxBytes = kRows * 64 * 2;  // 64 columns
constexpr int kTileBytes = 2 * kBoxBytes;  // 128 columns
constexpr int kGroup = 128;                // threads of a warpgroup

// The thread's lane, read anew: so that what follows from it is computed where it is needed, and
// takes no register from one item to the next.
__device__ __forceinline__ int Lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Sums that a thread holds of 64 x 64 and of 64 x 128 products. With g = lane / 4, t = lane % 4 a
// thread of warp w holds in c[4 j + 2 h + e] row 16 w + g + 8 h, column 8 j + 2 t + e.
constexpr int kScores = kRows * kRows / kGroup;
constexpr int kSums = kRows * kDim / kGroup;

#define KERNELS_SUMS_8(mode, i)                                                               \
  mode(c[i]), mode(c[i + 1]), mode(c[i + 2]), mode(c[i + 3]), mode(c[i + 4]), mode(c[i + 5]), \
      mode(c[i + 6]), mode(c[i + 7])
#define KERNELS_SUMS_32(mode, i)                                                      \
  KERNELS_SUMS_8(mode, i), KERNELS_SUMS_8(mode, i + 8), KERNELS_SUMS_8(mode, i + 16), \
      KERNELS_SUMS_8(mode, i + 24)
#define KERNELS_PLACES_32                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c = x y' (kFirst) or c += x y', 64 x 64 x 16, both of them rows in shared memory. The first of a
// sum does not read c: else c's registers would be taken from one step to the next.
template <bool kFirst>
__device__ __forceinline__ void MultiplyRows(float (&c)[kScores], uint64_t x, uint64_t y) {
  if constexpr (kFirst) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
                 ", %32, %33, 0, 1, 1, 0, 0;"
                 : KERNELS_SUMS_32("=f", 0)
                 : "l"(x), "l"(y)
                 : "memory");
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
                 ", %32, %33, 1, 1, 1, 0, 0;"
                 : KERNELS_SUMS_32("+f", 0)
                 : "l"(x), "l"(y)
                 : "memory");
  }
}
// The same, x in registers: as the sums of a 64 x 16 product, in pairs.
template <bool kFirst>
__device__ __forceinline__ void MultiplyRows(float (&c)[kScores], const uint32_t (&x)[4],
                                             uint64_t y) {
  if constexpr (kFirst) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
                 ", {%32, %33, %34, %35}, %36, 0, 1, 1, 0;"
                 : KERNELS_SUMS_32("=f", 0)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y)
                 : "memory");
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KERNELS_PLACES_32
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                 : KERNELS_SUMS_32("+f", 0)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y)
                 : "memory");
  }
}
// c += x y, 64 x 128 x 16, x in registers, y of 16 rows in shared memory.
__device__ __forceinline__ void MultiplyColumns(float (&c)[kSums], const uint32_t (&x)[4],
                                                uint64_t y) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : KERNELS_SUMS_32("+f", 0), KERNELS_SUMS_32("+f", 32)
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y)
      : "memory");
}

#undef KERNELS_PLACES_32
#undef KERNELS_SUMS_32
#undef KERNELS_SUMS_8

// Descriptors of a tile's columns [16 i, + 16) as rows, and of its rows [16 i, + 16), from those
// of i = 0: addresses count 16 bytes.
__device__ __forceinline__ uint64_t Rows0(uint32_t tile) { return SmemDescriptor(tile, 16, 1024); }
__device__ __forceinline__ uint64_t Columns0(uint32_t tile) {
  return SmemDescriptor(tile, kBoxBytes, 1024);
}
__device__ constexpr int RowsStep(int i) { return (i / 4 * kBoxBytes + i % 4 * 32) / 16; }
__device__ constexpr int ColumnsStep(int i) { return i * 16 * 128 / 16; }

// Starts c = x y' of all 128 columns, x in shared memory or in registers.
__device__ __forceinline__ void MultiplyTransposed(float (&c)[kScores], uint32_t x, uint32_t y) {
  const uint64_t x0 = Rows0(x), y0 = Rows0(y);
  MultiplyRows<true>(c, x0, y0);
#pragma unroll
  for (int i = 1; i < kDim / 16; ++i) MultiplyRows<false>(c, x0 + RowsStep(i), y0 + RowsStep(i));
}
using RowsFactor = uint32_t[kDim / 16][4];
__device__ __forceinline__ void MultiplyTransposed(float (&c)[kScores], const RowsFactor& x,
                                                   uint32_t y) {
  const uint64_t y0 = Rows0(y);
  MultiplyRows<true>(c, x[0], y0);
#pragma unroll
  for (int i = 1; i < kDim / 16; ++i) MultiplyRows<false>(c, x[i], y0 + RowsStep(i));
}

// The left factor of a product with a tile's columns: 64 x 64, rounded.
using LeftFactor = uint32_t[kRows / 16][4];

// Starts c += left * tile.
__device__ __forceinline__ void MultiplyTile(float (&c)[kSums], const LeftFactor& left,
                                             uint32_t tile) {
  const uint64_t columns = Columns0(tile);
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) {
    MultiplyColumns(c, left[i], columns + ColumnsStep(i));
  }
}

// Writes a warpgroup's sums times `factor`, rounded, to a tile: the thread's warp its 16 rows.
__device__ __forceinline__ void StoreSums(const float (&c)[kSums], float factor, uint32_t tile,
                                          int warp) {
  const int lane = Lane();
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const int chunk = i % 4 * 2 + lane / 16;
    const uint32_t to = tile + i / 4 * kBoxBytes + row * 128 + (chunk ^ (row % 8)) * 16;
    uint32_t v[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int at = 8 * i + 2 * part;
      v[part] = PackPair(c[at] * factor, c[at + 1] * factor);
    }
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  }
}

}  // namespace kernels::cuda::backward_hopper

#endif  // KERNELS_CUDA_ATTENTION_BACKWARD_PRODUCTS_CUH_
