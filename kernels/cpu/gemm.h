// One f32 matrix product on the calling thread, by oneDNN: what all CPU products are made of.
#ifndef KERNELS_CPU_GEMM_H_
#define KERNELS_CPU_GEMM_H_

#include <cstdint>
#include <string>

namespace kernels {

// c = alpha * op(a) op(b) + beta * c, row-major with leading dims lda, ldb, ldc (elements).
// op(a) is m x k, op(b) k x n; `trans` means that the transpose is stored. Always one thread,
// whatever OMP_NUM_THREADS says, so the bits depend on shapes and values alone.
void Sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// "oneDNN 2.7.2", the library behind Sgemm.
std::string SgemmLibrary();

// A buffer of this thread, at least `floats` long and 64-byte aligned, kept until the thread
// ends; `which` in [0, 8) tells buffers apart. Grows on first use, then never again for the
// same shapes: ops size it by tile constants, not by tensors.
float* ThreadScratch(int which, int64_t floats);

}  // namespace kernels

#endif  // KERNELS_CPU_GEMM_H_
