#include "comm/tracing.h"

#include <algorithm>
#include <utility>

namespace comm {
namespace {

using kernels::Queue;
using kernels::Tensor;

class Tracing : public Communicator {
 public:
  Tracing(Communicator& inner, CollectiveListener& listener) : inner_(inner), listener_(listener) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return inner_.backend(); }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp op,
                       Queue& queue) override {
    const int64_t id = listener_.Began("reduce_scatter", label, in.bytes(), queue);
    return Watch(id, inner_.ReduceScatter(label, in, out, op, queue), queue);
  }
  Future AllGather(absl::string_view label, Tensor in, Tensor out, Queue& queue) override {
    const int64_t id = listener_.Began("all_gather", label, out.bytes(), queue);
    return Watch(id, inner_.AllGather(label, in, out, queue), queue);
  }
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp op, Queue& queue) override {
    const int64_t id = listener_.Began("all_reduce", label, x.bytes(), queue);
    return Watch(id, inner_.AllReduce(label, x, op, queue), queue);
  }
  Future Broadcast(absl::string_view label, Tensor x, int root, Queue& queue) override {
    const int64_t id = listener_.Began("broadcast", label, x.bytes(), queue);
    return Watch(id, inner_.Broadcast(label, x, root, queue), queue);
  }
  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts, Queue& queue) override {
    const int64_t bytes =
        RowBytes(in) * std::max(SumOfCounts(send_counts), SumOfCounts(receive_counts));
    const int64_t id = listener_.Began("all_to_all_rows", label, bytes, queue);
    return Watch(id, inner_.AllToAllRows(label, in, send_counts, out, receive_counts, queue),
                 queue);
  }
  absl::Status Barrier(absl::string_view label) override { return inner_.Barrier(label); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 private:
  // A std::function has to be copyable, a Future is not: hence the shared pointer.
  Future Watch(int64_t id, Future future, Queue& queue) {
    listener_.Launched(id, queue);
    const auto shared = std::make_shared<Future>(std::move(future));
    return Future([this, id, shared](Queue& waiting) {
      listener_.Waiting(id, waiting);
      const absl::Status status = shared->Wait(waiting);
      listener_.Ended(id, waiting);
      return status;
    });
  }

  Communicator& inner_;
  CollectiveListener& listener_;
};

}  // namespace

std::unique_ptr<Communicator> MakeTracing(Communicator& inner, CollectiveListener& listener) {
  return std::make_unique<Tracing>(inner, listener);
}

}  // namespace comm
