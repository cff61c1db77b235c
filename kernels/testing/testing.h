// What the tests of ops share: host tensors, random values, conversions.
#ifndef KERNELS_TESTING_TESTING_H_
#define KERNELS_TESTING_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/tensor.h"

namespace kernels::testing {

// A CPU tensor with its memory (zeros at first).
class HostTensor {
 public:
  HostTensor(DType dtype, std::vector<int64_t> dims)
      : memory_(new char[Bytes(dtype, dims) + 1]()), tensor_(memory_.get(), dtype, dims) {}

  Tensor get() const { return tensor_; }
  operator Tensor() const { return tensor_; }  // NOLINT: reads as the tensor itself

  // Elements as doubles (f32, bf16 or i32).
  std::vector<double> ToDouble() const;
  // Rounds to the tensor's dtype (f32 or bf16).
  void Set(const std::vector<double>& values) const;

 private:
  static int64_t Bytes(DType dtype, const std::vector<int64_t>& dims) {
    int64_t bytes = SizeOf(dtype);
    for (int64_t dim : dims) bytes *= dim;
    return bytes;
  }
  std::unique_ptr<char[]> memory_;
  Tensor tensor_;
};

// Normal values of the given standard deviation, rounded to the dtype; the same for one seed.
HostTensor RandomTensor(DType dtype, std::vector<int64_t> dims, uint32_t seed, double stddev = 1.0);
// Uniform in [0, bound).
HostTensor RandomTokens(std::vector<int64_t> dims, int32_t bound, uint32_t seed);

// max |got - want| / (|want| over all elements, Euclidean norm / sqrt(n)), a relative error that
// does not blow up at single zeros.
double RelativeError(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace kernels::testing

#endif  // KERNELS_TESTING_TESTING_H_
