// Ranks that do not do what the others do.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;

void ExpectHas(const absl::Status& status, const std::string& part) {
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << "\nnot in\n" << status;
}

using Call = std::function<absl::Status(Communicator& comm, kernels::Queue& queue)>;

// Both of two ranks fail alike, and the message names both with their calls.
void ExpectDisagreement(const Call& call, const std::string& of_0, const std::string& of_1) {
  absl::Status statuses[2];
  RunRanks(2, [&](Communicator& comm, kernels::Queue& queue) {
    statuses[comm.rank()] = call(comm, queue);
  });
  EXPECT_EQ(statuses[0], statuses[1]);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  const std::string forth = absl::StrCat("rank 0 calls ", of_0, ", rank 1 calls ", of_1);
  const std::string back = absl::StrCat("rank 1 calls ", of_1, ", rank 0 calls ", of_0);
  EXPECT_TRUE(absl::StrContains(statuses[0].message(), forth) ||
              absl::StrContains(statuses[0].message(), back))
      << statuses[0];
}

TEST(LocalFaults, C2_DifferentCountsAreNamed) {
  RunRanks(3, [](Communicator& comm, kernels::Queue& queue) {
    const HostTensor in(DType::kF32, {8, 4}), out(DType::kF32, {8, 4});
    const std::vector<int64_t> send(3, 1), receive = {1, 1, comm.rank() == 1 ? 0 : 1};
    const absl::Status status =
        comm.AllToAllRows("embed", in, send, out, receive, queue).Wait(queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    ExpectHas(status,
              "collective 0, all_to_all_rows(embed, rows of f32 x 4): rank 2 sends 1 rows "
              "to rank 1, which expects 0");
  });
}

TEST(LocalFaults, C2_DifferentCallsAreNamed) {
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor x(DType::kF32, {4 + comm.rank()});
        return comm.AllReduce("grads", x, ReduceOp::kSum, queue).Wait(queue);
      },
      "all_reduce(grads, f32 x 4, sum)", "all_reduce(grads, f32 x 5, sum)");
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor x(comm.rank() == 0 ? DType::kF32 : DType::kBF16, {4});
        return comm.AllReduce("grads", x, ReduceOp::kSum, queue).Wait(queue);
      },
      "all_reduce(grads, f32 x 4, sum)", "all_reduce(grads, bf16 x 4, sum)");
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor x(DType::kF32, {4});
        return comm.AllReduce(comm.rank() == 0 ? "attn" : "mlp", x, ReduceOp::kSum, queue)
            .Wait(queue);
      },
      "all_reduce(attn, f32 x 4, sum)", "all_reduce(mlp, f32 x 4, sum)");
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor x(DType::kF32, {4}), y(DType::kF32, {8});
        return comm.rank() == 0 ? comm.AllGather("x", x, y, queue).Wait(queue)
                                : comm.ReduceScatter("x", y, x, ReduceOp::kAvg, queue).Wait(queue);
      },
      "all_gather(x, f32 x 4)", "reduce_scatter(x, f32 x 8, avg)");
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor x(DType::kF32, {4});
        return comm.rank() == 0 ? comm.Barrier("end")
                                : comm.Broadcast("x", x, 1, queue).Wait(queue);
      },
      "barrier(end)", "broadcast(x, f32 x 4, root 1)");
}

// All have called it, so nobody is late: when its end is waited for is the caller's own matter.
TEST(LocalFaults, WhatIsLongInFlightIsNoTimeout) {
  RunRanks(
      3,
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor own(DType::kF32, {4}), all(DType::kF32, {12}), x(DType::kF32, {4});
        Future gather = comm.AllGather("weights", own, all, queue);
        ASSERT_TRUE(comm.Barrier("all have called").ok());
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        // Nor does it hold up others.
        EXPECT_TRUE(comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue).ok());
        EXPECT_TRUE(gather.Wait(queue).ok());
      },
      absl::Milliseconds(100));
}

TEST(LocalFaults, C3_OppositeOrderIsNamed) {
  ExpectDisagreement(
      [](Communicator& comm, kernels::Queue& queue) {
        const HostTensor a(DType::kF32, {4}), b(DType::kF32, {4});
        const bool first = comm.rank() == 0;
        return comm.AllReduce(first ? "a" : "b", first ? a : b, ReduceOp::kSum, queue).Wait(queue);
      },
      "all_reduce(a, f32 x 4, sum)", "all_reduce(b, f32 x 4, sum)");
}

TEST(LocalFaults, C4_ALostRankEndsTheOthers) {
  std::atomic<int> failed{0};
  RunRanks(3, [&](Communicator& comm, kernels::Queue& queue) {
    const HostTensor x(DType::kF32, {4});
    EXPECT_TRUE(comm.AllReduce("all", x, ReduceOp::kSum, queue).Wait(queue).ok());
    if (comm.rank() == 1) return;  // ends before the next collective
    const absl::Status status = comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    ExpectHas(status, "rank 1 is gone, in collective 1, all_reduce(x, f32 x 4, sum)\n");
    ExpectHas(status,
              "  differs: rank 1 has left in good order, after collective 0, all_reduce(all");
    ++failed;
  });
  EXPECT_EQ(failed, 2);
}

TEST(LocalFaults, C4_AbortCarriesItsReason) {
  RunRanks(3, [](Communicator& comm, kernels::Queue& queue) {
    if (comm.rank() == 2) {
      comm.Abort(absl::DataLossError("shard 7 is torn"));
      EXPECT_FALSE(comm.Barrier("b").ok());
      return;
    }
    const HostTensor x(DType::kF32, {4});
    ExpectHas(comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue), "shard 7 is torn");
  });
}

TEST(LocalFaults, C3_AStuckRankIsATimeoutThatNamesIt) {
  std::atomic<bool> timed_out{false};
  absl::Status told;
  std::atomic<int> failures{0};
  const std::shared_ptr<LocalGroup> group =
      LocalGroup::Create(3, absl::Seconds(2), [&](const absl::Status& status) {
        told = status;
        ++failures;
      });
  std::vector<std::thread> ranks;
  std::vector<absl::Status> statuses(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank, comm = std::shared_ptr<Communicator>(group->Join(rank))] {
      const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
      const HostTensor x(DType::kF32, {4});
      EXPECT_TRUE(comm->AllReduce("all", x, ReduceOp::kSum, *queue).Wait(*queue).ok());
      // Rank 1 is stuck elsewhere until the others gave up.
      while (rank == 1 && !timed_out) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      statuses[rank] = comm->AllReduce("x", x, ReduceOp::kSum, *queue).Wait(*queue);
      timed_out = true;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : statuses) EXPECT_EQ(status, statuses[0]);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  ExpectHas(statuses[0],
            "timeout after 2s in collective 1, all_reduce(x, f32 x 4, sum): not called by rank "
            "1; ");
  ExpectHas(statuses[0], "  rank 0 started 1 all_reduce(x, f32 x 4, sum), 16 bytes, ");
  ExpectHas(statuses[0],
            "  differs: rank 1 is behind: it has not called collective 1, all_reduce(x, f32 x 4, "
            "sum), as ranks 0 and 2 have");
  EXPECT_EQ(told, statuses[0]);
  EXPECT_EQ(failures, 1);
}

}  // namespace
}  // namespace comm
