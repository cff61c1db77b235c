// A communicator that passes everything on and lets a test see, or spoil, what goes by.
#ifndef TOOLS_TRAINER_SPY_COMMUNICATOR_H_
#define TOOLS_TRAINER_SPY_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace tools {

class SpyCommunicator : public comm::Communicator {
 public:
  using Tensor = kernels::Tensor;
  using Queue = kernels::Queue;

  explicit SpyCommunicator(comm::Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return inner_.backend(); }

  comm::Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, comm::ReduceOp op,
                             Queue& queue) override {
    BeforeReduce(std::string(label), in);
    return Then(inner_.ReduceScatter(label, in, out, op, queue),
                [this, label = std::string(label), out] { AfterReduce(label, out); });
  }
  comm::Future AllGather(absl::string_view label, Tensor in, Tensor out, Queue& queue) override {
    return Then(inner_.AllGather(label, in, out, queue),
                [this, label = std::string(label), out] { AfterGather(label, out); });
  }
  comm::Future AllReduce(absl::string_view label, Tensor x, comm::ReduceOp op,
                         Queue& queue) override {
    return Then(inner_.AllReduce(label, x, op, queue),
                [this, label = std::string(label), x] { AfterAllReduce(label, x); });
  }
  comm::Future Broadcast(absl::string_view label, Tensor x, int root, Queue& queue) override {
    return inner_.Broadcast(label, x, root, queue);
  }
  comm::Future AllToAllRows(absl::string_view label, Tensor in,
                            absl::Span<const int64_t> send_counts, Tensor out,
                            absl::Span<const int64_t> receive_counts, Queue& queue) override {
    const int64_t received = comm::SumOfCounts(receive_counts);
    const Tensor beyond = out.Slice(received, out.dim(0) - received);
    return Then(inner_.AllToAllRows(label, in, send_counts, out, receive_counts, queue),
                [this, label = std::string(label), beyond] { AfterRows(label, beyond); });
  }
  absl::Status Barrier(absl::string_view label) override { return inner_.Barrier(label); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 protected:
  // `in`: all of a buffer, before a reduce-scatter reads it.
  virtual void BeforeReduce(const std::string& /*label*/, Tensor /*in*/) {}
  // `out`: this rank's chunk of the sum, before anybody uses it.
  virtual void AfterReduce(const std::string& /*label*/, Tensor /*out*/) {}
  // `x`: the sum.
  virtual void AfterAllReduce(const std::string& /*label*/, Tensor /*x*/) {}
  // `out`: all ranks' parts.
  virtual void AfterGather(const std::string& /*label*/, Tensor /*out*/) {}
  // `beyond`: the rows behind those that came.
  virtual void AfterRows(const std::string& /*label*/, Tensor /*beyond*/) {}

 private:
  // A std::function has to be copyable, a Future is not: hence the shared pointer.
  template <typename Function>
  static comm::Future Then(comm::Future future, Function function) {
    const auto shared = std::make_shared<comm::Future>(std::move(future));
    return comm::Future([shared, function = std::move(function)](Queue& queue) {
      const absl::Status status = shared->Wait(queue);
      if (status.ok()) function();
      return status;
    });
  }

  comm::Communicator& inner_;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_SPY_COMMUNICATOR_H_
