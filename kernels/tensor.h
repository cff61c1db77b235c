// Tensor: a dense, row-major view of memory that somebody else owns (see arena.h).
//
//   Tensor x = arena.Get(id);            // bf16 [slots, tokens, dim]
//   Tensor rows = x.Reshape({-1, dim});
//   Tensor second = x.Slice(1, 1);       // slot 1 only, still three dims
#ifndef KERNELS_TENSOR_H_
#define KERNELS_TENSOR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <vector>

#include "kernels/dtype.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

enum class DeviceKind : uint8_t { kCpu, kCuda };

constexpr int kMaxDims = 4;

class Tensor {
 public:
  // The empty tensor: what an optional argument is when it is absent.
  Tensor() = default;
  Tensor(void* data, DType dtype, const std::vector<int64_t>& dims,
         DeviceKind device = DeviceKind::kCpu);

  bool empty() const { return data_ == nullptr; }
  explicit operator bool() const { return data_ != nullptr; }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  DeviceKind device() const { return device_; }
  int rank() const { return rank_; }
  // Negative i counts from the end.
  int64_t dim(int i) const;
  std::vector<int64_t> dims() const { return {dims_.begin(), dims_.begin() + rank_}; }
  int64_t size() const;  // elements
  int64_t bytes() const { return size() * SizeOf(dtype_); }
  // The last dim, and the number of such rows.
  int64_t cols() const { return dim(-1); }
  int64_t rows() const { return size() / cols(); }

  // Same elements, other dims; one of them may be -1.
  Tensor Reshape(std::vector<int64_t> dims) const;
  // Entries [begin, begin + count) of the first dim.
  Tensor Slice(int64_t begin, int64_t count) const;
  // Entry `index` of the first dim, which goes away.
  Tensor At(int64_t index) const;

  // The elements, if they are of that type (CHECK).
  float* f32() const { return As<float>(DType::kF32); }
  BF16* bf16() const { return As<BF16>(DType::kBF16); }
  int32_t* i32() const { return As<int32_t>(DType::kI32); }
  int64_t* i64() const { return As<int64_t>(DType::kI64); }
  uint16_t* u16() const { return As<uint16_t>(DType::kU16); }

 private:
  template <typename T>
  T* As(DType dtype) const {
    CHECK_EQ(dtype_, dtype);
    return static_cast<T*>(data_);
  }

  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  DeviceKind device_ = DeviceKind::kCpu;
  int rank_ = 0;
  std::array<int64_t, kMaxDims> dims_ = {};
};

bool SameShape(const Tensor& a, const Tensor& b);
// "bf16 [8, 512, 128]"
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace kernels

#endif  // KERNELS_TENSOR_H_
