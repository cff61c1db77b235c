#include "comm/checking.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/flight_record.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int64_t kSignatureBytes = 256;  // a call's text, cut to this; labels are short

class Checking : public Communicator {
 public:
  explicit Checking(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)), mine_(kSignatureBytes), all_(kSignatureBytes * inner_->size()) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::string_view backend() const override { return inner_->backend(); }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp op,
                       kernels::Queue& queue) override {
    const absl::Status same = Agree(DescribeCall("reduce_scatter", label, in, Name(op)), queue);
    return same.ok() ? inner_->ReduceScatter(label, in, out, op, queue) : Failed(same);
  }
  Future AllGather(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) override {
    const absl::Status same = Agree(DescribeCall("all_gather", label, in, ""), queue);
    return same.ok() ? inner_->AllGather(label, in, out, queue) : Failed(same);
  }
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp op, kernels::Queue& queue) override {
    const absl::Status same = Agree(DescribeCall("all_reduce", label, x, Name(op)), queue);
    return same.ok() ? inner_->AllReduce(label, x, op, queue) : Failed(same);
  }
  Future Broadcast(absl::string_view label, Tensor x, int root, kernels::Queue& queue) override {
    const absl::Status same =
        Agree(DescribeCall("broadcast", label, x, absl::StrCat("root ", root)), queue);
    return same.ok() ? inner_->Broadcast(label, x, root, queue) : Failed(same);
  }
  absl::Status Barrier(absl::string_view label) override {
    if (queue_ != nullptr) {
      const absl::Status same = Agree(absl::StrCat("barrier(", label, ")"), *queue_);
      if (!same.ok()) return same;
    }
    return inner_->Barrier(label);
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }

 private:
  static Future Failed(const absl::Status& status) {
    return Future([status](kernels::Queue&) { return status; });
  }

  absl::Status Agree(const std::string& call, kernels::Queue& queue) {
    if (!failure_.ok()) return failure_;
    queue_ = &queue;
    std::memset(mine_.data(), 0, mine_.size());
    std::memcpy(mine_.data(), call.data(), std::min(call.size(), mine_.size() - 1));
    // The label says to a report (flight_record.h) what the rank was about to call.
    failure_ =
        inner_
            ->AllGather(absl::StrCat("check of ", call),
                        Tensor(mine_.data(), DType::kF8E4M3, {kSignatureBytes}),
                        Tensor(all_.data(), DType::kF8E4M3, {kSignatureBytes * size()}), queue)
            .Wait(queue);
    for (int other = 0; other < size() && failure_.ok(); ++other) {
      const char* theirs = all_.data() + other * kSignatureBytes;
      if (std::strcmp(theirs, all_.data()) != 0) {
        failure_ = absl::AbortedError(absl::StrCat("ranks disagree in collective ", calls_,
                                                   ": rank 0 calls ", all_.data(), ", rank ", other,
                                                   " calls ", theirs));
      }
    }
    ++calls_;
    return failure_;
  }

  const std::unique_ptr<Communicator> inner_;
  std::vector<char> mine_, all_;
  kernels::Queue* queue_ = nullptr;  // of the latest call, for a barrier, which has none
  int64_t calls_ = 0;
  absl::Status failure_;
};

}  // namespace

std::unique_ptr<Communicator> MakeChecking(std::unique_ptr<Communicator> inner) {
  return std::make_unique<Checking>(std::move(inner));
}

}  // namespace comm
