#include "kernels/tensor.h"

namespace kernels {

Tensor::Tensor(void* data, DType dtype, const std::vector<int64_t>& dims, DeviceKind device)
    : data_(data), dtype_(dtype), device_(device), rank_(static_cast<int>(dims.size())) {
  CHECK(data != nullptr);
  CHECK(rank_ >= 1 && rank_ <= kMaxDims) << "rank " << rank_;
  for (int i = 0; i < rank_; ++i) {
    CHECK_GE(dims[i], 0);
    dims_[i] = dims[i];
  }
}

int64_t Tensor::dim(int i) const {
  if (i < 0) i += rank_;
  CHECK(i >= 0 && i < rank_) << "dim " << i << " of " << *this;
  return dims_[i];
}

int64_t Tensor::size() const {
  if (rank_ == 0) return 0;
  int64_t size = 1;
  for (int i = 0; i < rank_; ++i) size *= dims_[i];
  return size;
}

Tensor Tensor::Reshape(std::vector<int64_t> dims) const {
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i] == -1) {
      CHECK_EQ(unknown, -1) << "two open dims in a reshape of " << *this;
      unknown = i;
    } else {
      known *= dims[i];
    }
  }
  if (unknown >= 0) {
    CHECK(known > 0 && size() % known == 0) << "reshape of " << *this;
    dims[unknown] = size() / known;
    known *= dims[unknown];
  }
  CHECK_EQ(known, size()) << "reshape of " << *this;
  return Tensor(data_, dtype_, dims, device_);
}

Tensor Tensor::Slice(int64_t begin, int64_t count) const {
  CHECK(begin >= 0 && count >= 0 && begin + count <= dim(0))
      << "slice [" << begin << ", " << begin + count << ") of " << *this;
  std::vector<int64_t> sliced = dims();
  const int64_t stride = dim(0) == 0 ? 0 : bytes() / dim(0);
  sliced[0] = count;
  return Tensor(static_cast<char*>(data_) + begin * stride, dtype_, sliced, device_);
}

Tensor Tensor::At(int64_t index) const {
  CHECK_GE(rank_, 2) << "At() of " << *this;
  const std::vector<int64_t> all = dims();
  return Slice(index, 1).Reshape({all.begin() + 1, all.end()});
}

bool SameShape(const Tensor& a, const Tensor& b) { return a.dims() == b.dims(); }

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (tensor.empty()) return out << "(no tensor)";
  out << tensor.dtype() << " [";
  for (int i = 0; i < tensor.rank(); ++i) out << (i ? ", " : "") << tensor.dim(i);
  return out << "]";
}

}  // namespace kernels
