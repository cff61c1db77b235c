// Products of attention's forward kernel for Hopper (sm_90a), by a warpgroup.
//
// With g = lane / 4 and t = lane % 4 a thread of warp w holds in c[4 j + 2 h + e] of a product row
// 16 w + g + 8 h, column 8 j + 2 t + e.
#ifndef KERNELS_CUDA_ATTENTION_WGMMA_CUH_
#define KERNELS_CUDA_ATTENTION_WGMMA_CUH_

#include <cstdint>

namespace kernels::cuda {

// The part of a matrix's Descriptor that changes with its address, and the descriptor `bytes` on,
// of matrices with 1024 bytes from 8 rows to the next 8.
__device__ __forceinline__ uint32_t DescriptorLow(uint32_t address, int leading) {
  return static_cast<uint32_t>(leading >> 4) << 16 | address >> 4;
}
__device__ __forceinline__ uint64_t SmemDescriptorAt(uint32_t low, int bytes) {
  return uint64_t{1u << 30 | 1024 >> 4} << 32 | (low + (bytes >> 4));
}

#define KERNELS_SUMS_8(i)                                                                     \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define KERNELS_SUMS_32(i) \
  KERNELS_SUMS_8(i), KERNELS_SUMS_8(i + 8), KERNELS_SUMS_8(i + 16), KERNELS_SUMS_8(i + 24)

// c = q k' + (add ? c : 0), 64 x 128 x 16, both [row][16] in shared memory.
__device__ __forceinline__ void WgmmaQK(float (&c)[64], uint64_t q, uint64_t k, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}"
      : KERNELS_SUMS_32(0), KERNELS_SUMS_32(32)
      : "l"(q), "l"(k), "r"(static_cast<int>(add))
      : "memory");
}

// The same of 64 keys.
__device__ __forceinline__ void WgmmaQK(float (&c)[32], uint64_t q, uint64_t k, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;\n}"
      : KERNELS_SUMS_32(0)
      : "l"(q), "l"(k), "r"(static_cast<int>(add))
      : "memory");
}

// c = p v + (add ? c : 0), 64 x 128 x 16. v is [16][128] in shared memory; p are the thread's
// values (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with the next column.
__device__ __forceinline__ void MultiplyValues(float (&c)[64], const uint32_t (&p)[4], uint64_t v,
                                               bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
      : KERNELS_SUMS_32(0), KERNELS_SUMS_32(32)
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v), "r"(static_cast<int>(add))
      : "memory");
}

#undef KERNELS_SUMS_32
#undef KERNELS_SUMS_8

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_WGMMA_CUH_
