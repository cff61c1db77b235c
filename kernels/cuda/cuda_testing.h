// Tests of CUDA ops: the same call on both backends, the CPU being the oracle.
//
//   TEST_F(NormTest, Rms) {
//     const Twin x = Normal(DType::kBF16, {2, 48, 768});
//     const Twin y = Output(DType::kBF16, {2, 48, 768}), r = Output(DType::kF32, {2, 48});
//     Both([&](Side side, Queue& queue) { RmsNorm(x.on(side), y.on(side), r.on(side), queue); });
//     ExpectClose(y, 2 * kBf16Roundoff);  // perhaps neighbours
//   }
#ifndef KERNELS_CUDA_CUDA_TESTING_H_
#define KERNELS_CUDA_CUDA_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/testing/bf16.h"

namespace kernels {

enum class Side { kCpu, kCuda };

// One tensor on both backends.
struct Twin {
  Tensor cpu, cuda;
  Tensor on(Side side) const { return side == Side::kCpu ? cpu : cuda; }
};

// ExpectClose's bounds are relative: two correct results may be neighbours, which are one bf16 step
// apart, at most 2 of these.
using testing::kBf16Roundoff;

class CudaTest : public ::testing::Test {
 protected:
  CudaTest();
  ~CudaTest() override;

  // Inputs, equal on both sides. Each call draws other numbers; a test always draws the same.
  Twin Normal(DType dtype, std::vector<int64_t> dims, double stddev = 1.0, double mean = 0.0);
  Twin Uniform(DType dtype, std::vector<int64_t> dims, double low, double high);
  Twin Ints(std::vector<int64_t> dims, int32_t low, int32_t high);  // i32 in [low, high)
  Twin Of(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values);
  Twin Zeros(DType dtype, std::vector<int64_t> dims);
  // An output: NaN (integers: 0x5A5A5A5A) on both sides, so that unwritten elements show.
  Twin Output(DType dtype, std::vector<int64_t> dims);

  // Runs `op` on the CPU, then on CUDA, and waits.
  void Both(const std::function<void(Side side, Queue& queue)>& op);

  // Elementwise |cuda - cpu| <= relative * max(|cpu|, rms of cpu) + absolute. NaN never passes.
  // On failure prints the number of bad elements, the worst and the first few with their indices.
  void ExpectClose(const Twin& twin, double relative, double absolute = 0,
                   const std::string& what = "");
  // ||cuda - cpu|| <= bound * ||cpu||.
  void ExpectNormClose(const Twin& twin, double bound, const std::string& what = "");
  void ExpectSameBits(const Twin& a, const std::string& what = "");  // cpu and cuda
  // Runs `op` twice on CUDA from the same contents of `cuda_outputs`, and compares bit by bit.
  void ExpectRepeats(const std::function<void(Queue& queue)>& op,
                     const std::vector<Tensor>& cuda_outputs);

  std::vector<double> OnHost(Tensor tensor);  // of either side
  std::vector<uint8_t> Bytes(Tensor tensor);
  // Copies host values (cast to the dtype) to a tensor of either side.
  void Set(Tensor tensor, const std::vector<double>& values);

  Queue& cpu() { return *cpu_; }
  Queue& cuda() { return *cuda_; }
  // A queue with CudaQueueOptions::deterministic.
  Queue& deterministic();

 private:
  Tensor Allocate(Side side, DType dtype, const std::vector<int64_t>& dims);

  struct Memory;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Queue> cpu_, cuda_, deterministic_;
  uint32_t seed_ = 0;
};

}  // namespace kernels

#endif  // KERNELS_CUDA_CUDA_TESTING_H_
