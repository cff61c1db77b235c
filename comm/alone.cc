#include "comm/alone.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::DeviceKind;
using kernels::DType;
using kernels::Tensor;

class Alone : public Communicator {
 public:
  explicit Alone(absl::string_view backend) : backend_(backend) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::string_view backend() const override { return backend_; }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp,
                       kernels::Queue& queue) override {
    CheckReducible(label, in);
    return Copy(label, in, out, queue);
  }
  Future AllGather(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) override {
    return Copy(label, in, out, queue);
  }
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp, kernels::Queue&) override {
    CheckReducible(label, x);
    return Ready();
  }
  Future Broadcast(absl::string_view label, Tensor, int root, kernels::Queue&) override {
    CHECK_EQ(root, 0) << label;
    return Ready();
  }
  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    CheckRows(label, 1, in, send_counts, out, receive_counts);
    CHECK_EQ(send_counts[0], receive_counts[0]) << label;
    if (send_counts[0] == 0) return Ready();
    return Copy(label, in.Slice(0, send_counts[0]), out.Slice(0, send_counts[0]), queue);
  }
  absl::Status Barrier(absl::string_view) override { return failure_; }
  void Abort(const absl::Status& reason) override {
    if (failure_.ok()) {
      failure_ = absl::UnavailableError(absl::StrCat("rank 0 gave up: ", reason.ToString()));
    }
  }

 private:
  static void CheckReducible(absl::string_view label, const Tensor& x) {
    CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) << label << ": reduction of " << x;
  }

  Future Copy(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) {
    CHECK_EQ(in.size(), out.size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    if (in.data() == out.data() || !failure_.ok()) return Ready();
    if (queue.device() != DeviceKind::kCpu && in.device() == DeviceKind::kCpu) {
      std::memcpy(out.data(), in.data(), in.bytes());
    } else {
      kernels::Copy(in, out, queue);
    }
    return Ready();
  }
  Future Ready() {
    return Future([status = failure_](kernels::Queue&) { return status; });
  }

  const std::string backend_;
  absl::Status failure_;
};

}  // namespace

std::unique_ptr<Communicator> MakeAlone(absl::string_view backend) {
  return std::make_unique<Alone>(backend);
}

}  // namespace comm
