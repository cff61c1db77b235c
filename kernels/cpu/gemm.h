// One f32 matrix product on the calling thread, by oneDNN: what all CPU products are made of.
//
// oneDNN is opened at run time, so that a program with both backends starts, and computes on a GPU,
// where it is not installed.
#ifndef KERNELS_CPU_GEMM_H_
#define KERNELS_CPU_GEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kernels {

// The names by which oneDNN is looked for, in this order: libdnnl.so.2 or .3, whichever the program
// was built with first, each followed by those with a minor version.
std::vector<std::string> SgemmLibraryNames();

// Opens oneDNN at the first call, by the first of these names that the loader finds, and always
// returns the same status. Safe from any thread. NotFound: it is not installed, with what to
// install. FailedPrecondition: it has a threading runtime that cannot be held to one thread.
absl::Status OpenSgemm();

// c = alpha * op(a) op(b) + beta * c, row-major with leading dims lda, ldb, ldc (elements).
// op(a) is m x k, op(b) k x n; `trans` means that the transpose is stored. Always one thread,
// whatever OMP_NUM_THREADS says, so the bits depend on shapes and values alone. CHECKs that
// OpenSgemm() is OK.
void Sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// "oneDNN 2.7.2", the library behind Sgemm, which it opens; "no oneDNN" where there is none.
std::string SgemmLibrary();

// A buffer of this thread, at least `floats` long and 64-byte aligned, kept until the thread
// ends; `which` in [0, 8) tells buffers apart. Grows on first use, then never again for the
// same shapes: ops size it by tile constants, not by tensors.
float* ThreadScratch(int which, int64_t floats);

}  // namespace kernels

#endif  // KERNELS_CPU_GEMM_H_
