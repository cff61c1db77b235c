// Hopper's own instructions (sm_90a): barriers that count bytes, TMA for boxes of
// tensors, products by a warpgroup out of shared memory, clusters of blocks.
#ifndef KERNELS_CUDA_HOPPER_CUH_
#define KERNELS_CUDA_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

namespace kernels::cuda {

__device__ __forceinline__ uint32_t SharedOffset(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint32_t RankInCluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Until the phase of this parity is over. The phase before the first has parity 1 and is over.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

// A stage of a ring of `stages` and how often it came round, modulo 2.
template <int stages>
struct PipelineState {
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
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// The address, for other blocks of the cluster too, of what `address` is in block `rank`.
__device__ __forceinline__ uint32_t InBlock(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Orders no ordinary accesses beyond the block: a release to the cluster would first wait for all
// stores of the thread to reach memory. What the products have read needs no such order.
__device__ __forceinline__ void ArriveInCluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void TmaLoad(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                        int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
// Of a tensor of three dims.
__device__ __forceinline__ void TmaLoad(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                        int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
// To the same place in all `blocks` of the cluster, whose barriers all count the bytes.
template <int blocks>
__device__ __forceinline__ void LoadBoxToAll(const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                             int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(static_cast<uint16_t>((1 << blocks) - 1)), "r"(c0), "r"(c1)
      : "memory");
}
template <int blocks>
__device__ __forceinline__ void LoadPermutedBoxToAll(const CUtensorMap& map, uint32_t to,
                                                     uint32_t barrier, int c0, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %6, %6, %6, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(static_cast<uint16_t>((1 << blocks) - 1)), "r"(c0), "r"(c4),
      "r"(0)
      : "memory");
}

// Of a matrix in shared memory in the layout of 128-byte swizzles, at a multiple of 1024 bytes or
// 32 bytes into its rows. `stride`: from 8 rows to the next 8. `leading`: of a matrix with the
// product's sum along columns of its rows' length, from 64 columns to the next 64.
__device__ __forceinline__ uint64_t SmemDescriptor(uint32_t address, int leading, int stride) {
  return (uint64_t{1} << 62) | (static_cast<uint64_t>(stride >> 4) << 32) |
         (static_cast<uint64_t>(leading >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

// What a thread of a warpgroup holds of a 64 x 256 product.
constexpr int kWideSums = 128;

#define KERNELS_SUMS_8(i)                                                                     \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define KERNELS_SUMS_32(i) \
  KERNELS_SUMS_8(i), KERNELS_SUMS_8(i + 8), KERNELS_SUMS_8(i + 16), KERNELS_SUMS_8(i + 24)

// c = x w + (add ? c : 0), 64 x 256 x 16, by a warpgroup. With g = lane / 4 and t = lane % 4 a
// thread of warp w holds in c[4 j + 2 h + e] row 16 w + g + 8 h, column 8 j + 2 t + e.
template <bool w_transposed>
__device__ __forceinline__ void MultiplyAdd(float (&c)[kWideSums], uint64_t x, uint64_t w,
                                            bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, p, 1, 1, 0, %131;\n}"
      : KERNELS_SUMS_32(0), KERNELS_SUMS_32(32), KERNELS_SUMS_32(64), KERNELS_SUMS_32(96)
      : "l"(x), "l"(w), "r"(static_cast<int>(add)), "n"(w_transposed ? 1 : 0)
      : "memory");
}

// What a thread of a warpgroup holds of a 64 x 192 product.
constexpr int kMediumSums = 96;

// c = a x + (add ? c : 0), 64 x 192 x 32, e5m2 by e4m3, a in registers: with g and t as above a
// thread of warp w has in a[2 k + h] row 16 w + g + 8 h, columns 16 k + 4 t to + 3, in order. The
// sum is of some 14 bits.
__device__ __forceinline__ void MultiplyAddFp8(float (&c)[kMediumSums], const uint32_t (&a)[4],
                                               uint64_t x, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %101, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k32.f32.e5m2.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
      "}, {%96, %97, %98, %99}, %100, p, 1, 1;\n}"
      : KERNELS_SUMS_32(0), KERNELS_SUMS_32(32), KERNELS_SUMS_32(64)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(static_cast<int>(add))
      : "memory");
}

#undef KERNELS_SUMS_32
#undef KERNELS_SUMS_8

__device__ __forceinline__ void WarpgroupArrive() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the youngest `groups` groups of products are done.
template <int groups>
__device__ __forceinline__ void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// Keeps uses of sums behind the wait for their products, which the compiler knows nothing of.
template <int n>
__device__ __forceinline__ void FenceOperand(float (&c)[n]) {
#pragma unroll
  for (float& sum : c) asm volatile("" : "+f"(sum)::"memory");
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_HOPPER_CUH_
