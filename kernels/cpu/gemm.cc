#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "third_party/absl_compat/check.h"

namespace kernels {

std::string SgemmLibrary() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

void Sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  // OpenMP keeps this setting per thread. The pool above is what runs in parallel.
  thread_local const bool single = [] {
    omp_set_num_threads(1);
    return true;
  }();
  CHECK(single);
  const dnnl_status_t status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha,
                                          a, lda, b, ldb, beta, c, ldc);
  CHECK_EQ(status, dnnl_success) << "dnnl_sgemm " << m << " x " << n << " x " << k;
}

float* ThreadScratch(int which, int64_t floats) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Buffer {
    std::unique_ptr<float, Free> memory;
    int64_t floats = 0;
  };
  thread_local std::array<Buffer, 8> buffers;
  CHECK(which >= 0 && which < 8);
  Buffer& buffer = buffers[which];
  if (buffer.floats < floats) {
    const int64_t bytes = (floats * int64_t{sizeof(float)} + 63) / 64 * 64;
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    CHECK(buffer.memory != nullptr) << bytes << " bytes of scratch";
    buffer.floats = floats;
  }
  return buffer.memory.get();
}

}  // namespace kernels
