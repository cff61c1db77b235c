#include "comm/checking.h"

#include "absl/strings/str_cat.h"
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
  Future AllToAllRows(absl::string_view, kernels::Tensor in, absl::Span<const int64_t> send_counts,
                      kernels::Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    return inner_.AllToAllRows("", in, send_counts, out, receive_counts, queue);
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

// The message of two ranks that disagree names both, with their calls.
void ExpectBothSides(const absl::Status& status, const std::string& of_0, const std::string& of_1) {
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const std::string text =
      absl::StrCat("collective 0: rank 0 calls ", of_0, ", rank 1 calls ", of_1);
  EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
}

TEST(Checking, C2_DifferentOpsDtypesAndCountsAreNamed) {
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor x(DType::kF32, {6}), y(DType::kF32, {12});
                             return comm.rank() == 0
                                        ? comm.AllGather("x", x, y, queue).Wait(queue)
                                        : comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
                           }),
                  "all_gather(x, f32 x 6)", "all_reduce(x, f32 x 6, sum)");
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor x(comm.rank() ? DType::kF32 : DType::kBF16, {6});
                             return comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
                           }),
                  "all_reduce(x, bf16 x 6, sum)", "all_reduce(x, f32 x 6, sum)");
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor x(DType::kF32, {6 + comm.rank()});
                             return comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
                           }),
                  "all_reduce(x, f32 x 6, sum)", "all_reduce(x, f32 x 7, sum)");
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor x(DType::kF32, {6});
                             const ReduceOp op = comm.rank() == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
                             return comm.AllReduce("x", x, op, queue).Wait(queue);
                           }),
                  "all_reduce(x, f32 x 6, avg)", "all_reduce(x, f32 x 6, sum)");
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor x(DType::kF32, {6});
                             return comm.Broadcast("x", x, comm.rank(), queue).Wait(queue);
                           }),
                  "broadcast(x, f32 x 6, root 0)", "broadcast(x, f32 x 6, root 1)");
}

TEST(Checking, C3_OppositeOrderIsNamed) {
  ExpectBothSides(CallWith(2,
                           [](Communicator& comm, kernels::Queue& queue) {
                             const HostTensor a(DType::kF32, {6}), b(DType::kF32, {6});
                             const bool first = comm.rank() == 0;
                             Future one = comm.AllReduce(first ? "a" : "b", first ? a : b,
                                                         ReduceOp::kSum, queue);
                             Future two = comm.AllReduce(first ? "b" : "a", first ? b : a,
                                                         ReduceOp::kSum, queue);
                             const absl::Status status = one.Wait(queue);
                             EXPECT_FALSE(two.Wait(queue).ok());
                             return status;
                           }),
                  "all_reduce(a, f32 x 6, sum)", "all_reduce(b, f32 x 6, sum)");
}

TEST(Checking, BarriersAreCompared) {
  for (const bool other_call : {false, true}) {
    const absl::Status status = CallWith(2, [&](Communicator& comm, kernels::Queue& queue) {
      const HostTensor x(DType::kF32, {6});
      EXPECT_TRUE(comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue).ok());
      EXPECT_TRUE(comm.Barrier("start").ok());
      if (other_call && comm.rank() == 1) {
        return comm.AllReduce("y", x, ReduceOp::kSum, queue).Wait(queue);
      }
      return comm.Barrier(comm.rank() == 0 ? "checkpoint" : "end");
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    const std::string text(status.message());
    EXPECT_NE(text.find("collective 2: rank 0 calls barrier(checkpoint), rank 1 calls "),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(other_call ? "all_reduce(y, f32 x 6, sum)" : "barrier(end)"),
              std::string::npos)
        << text;
  }
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
