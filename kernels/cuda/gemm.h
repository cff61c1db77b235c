// Dense products through cuBLASLt, opened at run time.
//
//   d = alpha * op(a) op(b) + beta * c,  row-major, `batch` of them
//
// The algorithm of each shape is chosen by timing the library's candidates once; the choice is
// kept in a small file keyed by card and library version, so that the next start finds it. On a
// deterministic queue nothing is timed: the library's first candidate runs, the same in each run.
#ifndef KERNELS_CUDA_GEMM_H_
#define KERNELS_CUDA_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"

namespace kernels {

// A matrix, or a batch of them, `stride` elements apart (0: one matrix for all).
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  int64_t ld = 0;  // elements from row to row, as stored
  int64_t stride = 0;
  bool trans = false;  // stored [K, M] for a, [N, K] for b
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  GemmOperand a;  // op(a) is [m, k]
  GemmOperand b;  // op(b) is [k, n]
  float alpha = 1.0f;
  float beta = 0.0f;
  const void* c = nullptr;  // laid out like d; may be d
  void* d = nullptr;        // [m, n]
  DType d_dtype = DType::kBF16;
  int64_t d_ld = 0;
  int64_t d_stride = 0;
  // fp8 operands only (these need a not transposed, b transposed, k and n multiples of 16):
  // keep the tensor cores' short accumulator instead of moving sums to f32 at intervals.
  bool fast_accumulate = false;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // f32 operands are multiplied in f32 (no tf32).
  virtual void Run(const GemmArgs& args, CudaQueue& queue) = 0;
  // Writes new choices to the file. Called once, when the first steps are over.
  virtual absl::Status SaveChoices() = 0;
};

// NotFound if the library is missing. `device` is the CUDA ordinal.
absl::StatusOr<std::unique_ptr<Gemm>> MakeGemm(int device);

// Of cuBLASLt: 130100 is 13.1.0. NotFound if it is missing.
absl::StatusOr<int64_t> CublasLtVersion();

}  // namespace kernels

#endif  // KERNELS_CUDA_GEMM_H_
