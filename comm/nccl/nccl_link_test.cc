// How faults end, on fakes of CUDA and NCCL: which error, which report, in time, and that nothing
// uses a communicator that was stopped.
#include "comm/nccl/nccl_link.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "comm/address_file.h"
#include "comm/nccl/fake_gpu.h"
#include "comm/nccl/nccl_rows.h"
#include "comm/socket.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

using Clock = std::chrono::steady_clock;

class NcclLinkTest : public testing::Test {
 protected:
  NcclLinkTest() {
    folder_ = absl::StrCat(testing::TempDir(), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    mkdir(folder_.c_str(), 0700);
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  ~NcclLinkTest() override { EXPECT_EQ(FakeCommsAlive(), 0); }

  static ProcessRank Where(int rank, int size) {
    ProcessRank where;
    where.rank = where.local_rank = rank;
    where.size = where.local_size = size;
    where.job = "link";
    return where;
  }

  static absl::StatusOr<std::unique_ptr<NcclLink>> Connect(int rank, int size,
                                                           absl::Duration timeout,
                                                           FailureListener on_failure = {}) {
    return NcclLink::Connect(FakeNccl(), Where(rank, size), rank, timeout, std::move(on_failure));
  }

  // One thread a rank, all connected.
  static void Run(int size, absl::Duration timeout,
                  const std::function<void(NcclLink& link)>& body) {
    std::vector<std::thread> ranks;
    std::atomic<int> connected{0};  // not a collective: one that fails right after would spoil it
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        std::atomic<int> told{0};
        {
          const auto link = Connect(rank, size, timeout, [&told](const absl::Status&) { ++told; });
          ASSERT_TRUE(link.ok()) << link.status();
          ++connected;
          while (connected < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          body(**link);
          // At once, and again with the report.
          const bool failed = !(*link)->failure().ok();
          EXPECT_TRUE(!failed || told == 2) << told;
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  static absl::StatusOr<std::shared_ptr<Operation>> Launch(
      NcclLink& link, const std::string& call, std::optional<cudaStream_t> after = std::nullopt) {
    return link.Launch(call, 8, after, [](ncclComm_t comm, cudaStream_t stream) {
      return FakeNccl().AllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, stream);
    });
  }
  static absl::Status Call(NcclLink& link, const std::string& call) {
    const auto operation = Launch(link, call);
    return operation.ok() ? link.WaitOnHost(**operation) : operation.status();
  }
  static absl::Status FailureOf(NcclLink& link) {
    while (link.failure().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return link.failure();
  }
  static void ExpectHas(const absl::Status& status, const std::string& part) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << "\nnot in\n" << status;
  }

  std::string folder_;
};

TEST_F(NcclLinkTest, CollectivesEndInOrder) {
  Run(4, absl::Seconds(20), [](NcclLink& link) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < 50; ++i) {
      const auto operation = Launch(link, absl::StrCat("call ", i));
      ASSERT_TRUE(operation.ok()) << operation.status();
      EXPECT_EQ((*operation)->number, i);
      operations.push_back(*operation);
    }
    for (const auto& operation : operations) EXPECT_TRUE(link.WaitOnHost(*operation).ok());
    EXPECT_TRUE(Call(link, "last").ok());
    EXPECT_TRUE(link.failure().ok());
  });
}

// Rank r sends (r + to) % 3 rows to rank `to`: some pairs move nothing, some ranks send to
// themselves.
TEST_F(NcclLinkTest, RowsOfAGroupMove) {
  for (const int size : {1, 2, 3, 5}) {
    Run(size, absl::Seconds(20), [](NcclLink& link) {
      constexpr int64_t kCols = 5;
      const int size = link.size(), rank = link.rank();
      const auto rows = [](int from, int to) { return int64_t{(from + to) % 3}; };
      for (int call = 0; call < 3; ++call) {
        std::vector<int64_t> send, receive;
        std::vector<float> in, want;
        for (int other = 0; other < size; ++other) {
          send.push_back(rows(rank, other));
          receive.push_back(rows(other, rank));
          in.insert(in.end(), send.back() * kCols, 100.0f * rank + 10 * other + call);
          want.insert(want.end(), receive.back() * kCols, 100.0f * other + 10 * rank + call);
        }
        std::vector<float> out(want.size() + 1, -1);
        want.push_back(-1);
        const auto operation =
            link.Launch("rows", 8, std::nullopt, [&](ncclComm_t comm, cudaStream_t stream) {
              return GroupedRows(FakeNccl(),
                                 {.in = reinterpret_cast<const char*>(in.data()),
                                  .send_counts = send,
                                  .out = reinterpret_cast<char*>(out.data()),
                                  .receive_counts = receive,
                                  .row_bytes = kCols * 4},
                                 comm, stream);
            });
        ASSERT_TRUE(operation.ok()) << operation.status();
        EXPECT_TRUE(link.WaitOnHost(**operation).ok());
        EXPECT_EQ(out, want) << rank << " of " << size;
      }
      EXPECT_TRUE(Call(link, "afterwards").ok());
    });
  }
}

TEST_F(NcclLinkTest, C3_ARankThatSendsNoRowsIsNamed) {
  Run(3, absl::Seconds(2), [](NcclLink& link) {
    const std::vector<int64_t> counts(3, 2);
    std::vector<char> in(6), out(6);
    const absl::Status status = [&] {
      if (link.rank() == 1) return FailureOf(link);
      const auto operation =
          link.Launch("rows", 8, std::nullopt, [&](ncclComm_t comm, cudaStream_t stream) {
            return GroupedRows(FakeNccl(),
                               {.in = in.data(),
                                .send_counts = counts,
                                .out = out.data(),
                                .receive_counts = counts,
                                .row_bytes = 1},
                               comm, stream);
          });
      return operation.ok() ? link.WaitOnHost(**operation) : operation.status();
    }();
    ExpectHas(status, "collective 0, rows, has not ended after 2s");
    ExpectHas(status, "rank 1 is behind");
  });
}

TEST_F(NcclLinkTest, C3_ARankThatDoesNotCallIsNamedOnAll) {
  Run(3, absl::Seconds(2), [](NcclLink& link) {
    ASSERT_TRUE(Call(link, "first").ok());
    const auto start = Clock::now();
    const absl::Status status = link.rank() == 1 ? FailureOf(link) : Call(link, "second");
    EXPECT_FALSE(status.ok());
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
    EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat("rank ", link.rank(), " of 3: ")))
        << status;
    ExpectHas(status, "collective 1, second, has not ended after 2s");
    ExpectHas(status, "  rank 1 started 0 first, 8 bytes, ");
    ExpectHas(status,
              "\n  differs: rank 1 is behind: it has not called collective 1, second, as "
              "ranks 0 and 2 have");
    EXPECT_EQ(Call(link, "afterwards"), status);
  });
}

TEST_F(NcclLinkTest, C3_OtherCallsAreNamedWithBothSides) {
  Run(2, absl::Seconds(2), [](NcclLink& link) {
    // NCCL itself would see no difference in a label; what hangs is the call after it.
    EXPECT_TRUE(Call(link, link.rank() == 0 ? "attn" : "mlp").ok());
    const absl::Status status = link.rank() == 0 ? Call(link, "next") : FailureOf(link);
    ExpectHas(status, "differs: collective 0: rank 0 calls attn, rank 1 calls mlp");
  });
}

TEST_F(NcclLinkTest, AStuckStreamIsFoundByTheOthers) {
  Run(2, absl::Seconds(2), [](NcclLink& link) {
    FakeStream compute;
    if (link.rank() == 1) compute.Block();
    ASSERT_TRUE(Launch(link, "first", compute.get()).ok());
    const absl::Status status = FailureOf(link);
    ExpectHas(status, "collective 0, first");
    compute.Unblock();
  });
}

TEST_F(NcclLinkTest, C4_AbortCarriesItsReason) {
  for (const int who : {0, 2}) {
    Run(3, absl::Seconds(60), [who](NcclLink& link) {
      const auto start = Clock::now();
      if (link.rank() == who) {
        link.Abort(absl::DataLossError("shard 7 is torn"));
        EXPECT_FALSE(Call(link, "x").ok());
      } else {
        ExpectHas(Call(link, "x"), "shard 7 is torn");
      }
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
    });
  }
}

TEST_F(NcclLinkTest, ARankThatLeavesInGoodOrderIsNamed) {
  Run(3, absl::Seconds(2), [](NcclLink& link) {
    ASSERT_TRUE(Call(link, "first").ok());
    if (link.rank() == 2) return;
    const absl::Status status = Call(link, "second");
    ExpectHas(status, "differs: rank 2 has left in good order");
  });
}

TEST_F(NcclLinkTest, NcclsOwnErrorEndsAll) {
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([rank] {
      SetFakeFaults({.never_connects = false, .fails_at = rank == 1 ? 1 : -1});
      const auto link = Connect(rank, 2, absl::Seconds(20));
      ASSERT_TRUE(link.ok()) << link.status();
      // A rank may hear of the other's failure while it looks for the end of its own call.
      const absl::Status first = Call(**link, "first");
      EXPECT_TRUE(rank == 0 || first.ok()) << first;
      const absl::Status status = rank == 1 ? Call(**link, "second") : FailureOf(**link);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      ExpectHas(status, "rank 1 of 2: NCCL failed on ");
      ExpectHas(status, " in second: injected");
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(NcclLinkTest, StartHasATimeout) {
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([rank] {
      SetFakeFaults({.never_connects = true, .fails_at = -1});
      const auto start = Clock::now();
      const auto link = Connect(rank, 2, absl::Seconds(2));
      EXPECT_FALSE(link.ok());
      EXPECT_TRUE(absl::IsDeadlineExceeded(link.status()) || absl::IsUnavailable(link.status()))
          << link.status();
      ExpectHas(link.status(), "NCCL did not connect the ranks within 2s");
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// A rank of which only the connection is real.
class HollowRank {
 public:
  // `device_text`: as a rank tells the others which GPU it has.
  HollowRank(int rank, int size, const std::string& device_text) {
    const absl::StatusOr<std::string> path = AddressPath("link");
    EXPECT_TRUE(path.ok()) << path.status();
    absl::StatusOr<LocalAddress> address = ReadAddress(*path);
    while (!address.ok()) address = ReadAddress(*path);
    absl::StatusOr<Link> link = comm::Connect("127.0.0.1", address->port);
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    link_.Send(
        {.kind = 'H', .text = absl::StrCat("nanospeed-1 ", address->token, " ", rank, " ", size)});
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(link_.Receive(Deadline::max()).ok());
    link_.Send({.kind = 'T', .text = device_text});
    for (int i = 0; i < size; ++i) EXPECT_TRUE(link_.Receive(Deadline::max()).ok());
    link_.Send({.kind = 'T', .text = ""});
    for (int i = 0; i < size; ++i) (void)link_.Receive(Deadline::max());
  }
  void Die() { link_.Close(); }

 private:
  Link link_;
};

TEST_F(NcclLinkTest, C4_ALostRankIsNamed) {
  std::vector<std::thread> ranks;
  std::atomic<int> in_call{0};
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      const auto link = Connect(rank, 3, absl::Seconds(60));
      ASSERT_TRUE(link.ok()) << link.status();
      const auto operation = Launch(**link, "first");
      ASSERT_TRUE(operation.ok()) << operation.status();
      ++in_call;
      const auto start = Clock::now();
      const absl::Status status = (*link)->WaitOnHost(**operation);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      ExpectHas(status, "rank 2 is gone, in collective 0, first\n");
      ExpectHas(status, "  differs: rank 2 is lost");
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    });
  }
  HollowRank lost(2, 3, "host aa 2 ");
  while (in_call < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  lost.Die();
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(NcclLinkTest, OtherCommIdsAreRefused) {
  std::thread first([] {
    const auto link = Connect(0, 2, absl::Seconds(20));
    EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument) << link.status();
    ExpectHas(link.status(), "NCCL_COMM_ID is \"\" on rank 0 and \"10.0.0.1:5000\" on rank 1");
  });
  HollowRank other(1, 2, "host aa 1 10.0.0.1:5000");
  other.Die();
  first.join();
}

}  // namespace
}  // namespace comm
