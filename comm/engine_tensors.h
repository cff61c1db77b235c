// What the cases of engine_suite.h share: tensors on the rank's device, and what they should hold.
#ifndef COMM_ENGINE_TENSORS_H_
#define COMM_ENGINE_TENSORS_H_

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/engine_suite.h"
#include "gtest/gtest.h"
#include "third_party/absl_compat/check.h"

namespace comm {

using Value = std::function<double(int64_t)>;

// A tensor on the rank's device.
class DeviceTensor {
 public:
  DeviceTensor(const EngineRank& rank, kernels::DType dtype, int64_t size, const Value& value)
      : rank_(rank), memory_(rank.backend.Allocate(size * kernels::SizeOf(dtype))) {
    CHECK(memory_ != nullptr) << size;
    tensor_ = kernels::Tensor(memory_, dtype, {size}, rank.backend.device());
    Set(value);
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  ~DeviceTensor() {
    rank_.queue.Synchronize();
    rank_.backend.Free(memory_);
  }

  operator kernels::Tensor() const { return tensor_; }  // NOLINT: reads as the tensor itself
  kernels::Tensor Part(int64_t begin, int64_t size) const { return tensor_.Slice(begin, size); }

  void Set(const Value& value) {
    std::vector<float> wide(tensor_.size());
    std::vector<kernels::BF16> narrow(tensor_.size());
    for (int64_t i = 0; i < tensor_.size(); ++i) {
      wide[i] = static_cast<float>(value(i));
      narrow[i] = kernels::ToBF16(wide[i]);
    }
    const bool bf16 = tensor_.dtype() == kernels::DType::kBF16;
    rank_.queue.Upload(bf16 ? static_cast<void*>(narrow.data()) : wide.data(), tensor_);
    rank_.queue.Synchronize();
  }

 private:
  const EngineRank& rank_;
  void* const memory_;
  kernels::Tensor tensor_;
};

inline std::vector<float> OnHost(const EngineRank& rank, const kernels::Tensor& x) {
  std::vector<float> wide(x.size());
  std::vector<kernels::BF16> narrow(x.size());
  const bool bf16 = x.dtype() == kernels::DType::kBF16;
  rank.queue.Download(x, bf16 ? static_cast<void*>(narrow.data()) : wide.data());
  rank.queue.Synchronize();
  for (int64_t i = 0; bf16 && i < x.size(); ++i) wide[i] = kernels::ToFloat(narrow[i]);
  return wide;
}

// All values; of wrong ones the first is told.
inline void ExpectValues(const EngineRank& rank, const kernels::Tensor& x, const Value& want,
                         const std::string& what, double relative = 0) {
  const std::vector<float> got = OnHost(rank, x);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double bound = relative * std::abs(want(i));
    if (std::abs(got[i] - want(i)) <= bound) continue;
    ADD_FAILURE() << "rank " << rank.comm.rank() << " of " << rank.comm.size() << ": " << what
                  << ", element " << i << ": " << got[i] << ", not " << want(i);
    return;
  }
}

inline void ExpectOk(const EngineRank& rank, Future future, const std::string& what) {
  const absl::Status status = future.Wait(rank.queue);
  EXPECT_TRUE(status.ok()) << what << ": " << status;
}

// The rank's communicator, for a decorator that wants one of its own.
class Borrowed : public Communicator {
 public:
  explicit Borrowed(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return inner_.backend(); }
  Future ReduceScatter(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                       ReduceOp op, kernels::Queue& queue) override {
    return inner_.ReduceScatter(label, in, out, op, queue);
  }
  Future AllGather(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                   kernels::Queue& queue) override {
    return inner_.AllGather(label, in, out, queue);
  }
  Future AllReduce(absl::string_view label, kernels::Tensor x, ReduceOp op,
                   kernels::Queue& queue) override {
    return inner_.AllReduce(label, x, op, queue);
  }
  Future Broadcast(absl::string_view label, kernels::Tensor x, int root,
                   kernels::Queue& queue) override {
    return inner_.Broadcast(label, x, root, queue);
  }
  Future AllToAllRows(absl::string_view label, kernels::Tensor in,
                      absl::Span<const int64_t> send_counts, kernels::Tensor out,
                      absl::Span<const int64_t> receive_counts, kernels::Queue& queue) override {
    return inner_.AllToAllRows(label, in, send_counts, out, receive_counts, queue);
  }
  absl::Status Barrier(absl::string_view label) override { return inner_.Barrier(label); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 private:
  Communicator& inner_;
};

}  // namespace comm

#endif  // COMM_ENGINE_TENSORS_H_
