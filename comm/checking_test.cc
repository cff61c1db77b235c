#include "comm/checking.h"

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;

// A communicator whose own checks are too weak to see different labels and roots: what an
// engine such as MPI is. It lets the decorator's collectives through and records the others.
class Blind : public Communicator {
 public:
  explicit Blind(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return "blind"; }
  Future ReduceScatter(absl::string_view, kernels::Tensor in, kernels::Tensor out, ReduceOp op,
                       kernels::Queue& queue) override {
    return inner_.ReduceScatter("", in, out, op, queue);
  }
  Future AllGather(absl::string_view, kernels::Tensor in, kernels::Tensor out,
                   kernels::Queue& queue) override {
    return inner_.AllGather("", in, out, queue);
  }
  Future AllReduce(absl::string_view, kernels::Tensor x, ReduceOp op,
                   kernels::Queue& queue) override {
    return inner_.AllReduce("", x, op, queue);
  }
  Future Broadcast(absl::string_view, kernels::Tensor x, int root, kernels::Queue& queue) override {
    return inner_.Broadcast("", x, root, queue);
  }
  absl::Status Barrier(absl::string_view) override { return inner_.Barrier(""); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 private:
  Communicator& inner_;
};

absl::Status CallWith(int size,
                      const std::function<absl::Status(Communicator&, kernels::Queue&)>& body) {
  std::vector<absl::Status> statuses(size);
  RunRanks(size, [&](Communicator& comm, kernels::Queue& queue) {
    const std::unique_ptr<Communicator> checking = MakeChecking(std::make_unique<Blind>(comm));
    statuses[comm.rank()] = body(*checking, queue);
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, statuses[0]);  // all learn it
  return statuses[0];
}

TEST(Checking, EqualCallsPass) {
  EXPECT_TRUE(CallWith(3, [](Communicator& comm, kernels::Queue& queue) {
                const HostTensor x(DType::kF32, {6});
                x.Set({1, 1, 1, 1, 1, 1});
                absl::Status status = comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
                EXPECT_EQ(x.ToDouble()[5], 3);
                return status;
              }).ok());
}

TEST(Checking, DifferentLabelsAreNamed) {
  const absl::Status status = CallWith(3, [](Communicator& comm, kernels::Queue& queue) {
    const HostTensor x(DType::kF32, {6});
    return comm.AllReduce(comm.rank() == 2 ? "mlp" : "attn", x, ReduceOp::kSum, queue).Wait(queue);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_NE(status.message().find("attn"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("mlp"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("rank 2"), absl::string_view::npos) << status;
}

TEST(Checking, DifferentOpsDtypesAndCountsAreFound) {
  EXPECT_FALSE(CallWith(2, [](Communicator& comm, kernels::Queue& queue) {
                 const HostTensor x(DType::kF32, {6}), y(DType::kF32, {12});
                 return comm.rank() == 0
                            ? comm.AllGather("x", x, y, queue).Wait(queue)
                            : comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
               }).ok());
  EXPECT_FALSE(CallWith(2, [](Communicator& comm, kernels::Queue& queue) {
                 const HostTensor x(comm.rank() ? DType::kF32 : DType::kBF16, {6});
                 return comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
               }).ok());
  EXPECT_FALSE(CallWith(2, [](Communicator& comm, kernels::Queue& queue) {
                 const HostTensor x(DType::kF32, {6 + comm.rank()});
                 return comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
               }).ok());
  EXPECT_FALSE(CallWith(2, [](Communicator& comm, kernels::Queue& queue) {
                 const HostTensor x(DType::kF32, {6});
                 return comm.Broadcast("x", x, comm.rank(), queue).Wait(queue);
               }).ok());
}

TEST(Checking, StaysFailed) {
  const absl::Status status = CallWith(2, [](Communicator& comm, kernels::Queue& queue) {
    const HostTensor x(DType::kF32, {6});
    const absl::Status first =
        comm.AllReduce(comm.rank() ? "a" : "b", x, ReduceOp::kSum, queue).Wait(queue);
    EXPECT_FALSE(first.ok());
    return comm.AllReduce("same", x, ReduceOp::kSum, queue).Wait(queue);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace comm
