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
  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    const std::string call = DescribeRows(label, in);
    absl::Status same = Agree(call, queue);
    if (same.ok()) same = AgreeOnCounts(call, send_counts, receive_counts, queue);
    return same.ok() ? inner_->AllToAllRows(label, in, send_counts, out, receive_counts, queue)
                     : Failed(same);
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
    Gather(call, call.data(), std::min<int64_t>(call.size(), kSignatureBytes - 1), queue);
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

  // Of a call that all make: whether what each rank sends to each is what that one expects.
  absl::Status AgreeOnCounts(const std::string& call, absl::Span<const int64_t> send_counts,
                             absl::Span<const int64_t> receive_counts, kernels::Queue& queue) {
    // So many ranks' counts a gather.
    constexpr int kAtOnce = kSignatureBytes / (2 * sizeof(int64_t));
    // Of each rank: to and from each.
    std::vector<std::vector<int64_t>> sent(size()), expected(size());
    for (int begin = 0; begin < size(); begin += kAtOnce) {
      const int count = std::min(kAtOnce, size() - begin);
      int64_t both[2 * kAtOnce] = {};
      std::copy_n(send_counts.begin() + begin, count, both);
      std::copy_n(receive_counts.begin() + begin, count, both + kAtOnce);
      Gather(call, both, sizeof(both), queue);
      if (!failure_.ok()) return failure_;
      for (int rank = 0; rank < size(); ++rank) {
        std::memcpy(both, all_.data() + rank * kSignatureBytes, sizeof(both));
        sent[rank].insert(sent[rank].end(), both, both + count);
        expected[rank].insert(expected[rank].end(), both + kAtOnce, both + kAtOnce + count);
      }
    }
    for (int from = 0; from < size() && failure_.ok(); ++from) {
      for (int to = 0; to < size() && failure_.ok(); ++to) {
        failure_ = CompareCounts(calls_ - 1, call, from, sent[from][to], to, expected[to][from]);
      }
    }
    return failure_;
  }

  // Fills all_ with each rank's `bytes` and zeros, or sets failure_.
  void Gather(const std::string& call, const void* bytes, int64_t count, kernels::Queue& queue) {
    std::memset(mine_.data(), 0, mine_.size());
    std::memcpy(mine_.data(), bytes, count);
    // The label says to a report (flight_record.h) what the rank was about to call.
    failure_ =
        inner_
            ->AllGather(absl::StrCat("check of ", call),
                        Tensor(mine_.data(), DType::kF8E4M3, {kSignatureBytes}),
                        Tensor(all_.data(), DType::kF8E4M3, {kSignatureBytes * size()}), queue)
            .Wait(queue);
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
