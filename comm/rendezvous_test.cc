#include "comm/rendezvous.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "comm/address_file.h"
#include "comm/socket.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

bool Has(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

class RendezvousTest : public testing::Test {
 protected:
  RendezvousTest() {
    folder_ = absl::StrCat(testing::TempDir(), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    mkdir(folder_.c_str(), 0700);
    setenv("TMPDIR", folder_.c_str(), 1);
  }

  static ProcessRank Where(int rank, int size) {
    ProcessRank where;
    where.rank = where.local_rank = rank;
    where.size = where.local_size = size;
    where.job = "job/1";
    where.launcher = "test";
    return where;
  }

  using Body = std::function<void(int rank, absl::StatusOr<std::unique_ptr<Rendezvous>>)>;
  static void Run(int size, const Body& body, const std::string& address = "") {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([=, &body] {
        ProcessRank where = Where(rank, size);
        where.rendezvous = address;
        body(rank, Rendezvous::Meet(where, kTimeout));
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  // Polls until it fails.
  static absl::Status FailureOf(Rendezvous& rendezvous) {
    while (true) {
      const absl::Status status = rendezvous.Poll();
      if (!status.ok()) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::string folder_;
};

TEST_F(RendezvousTest, AllGatherByRank) {
  Run(5, [](int rank, absl::StatusOr<std::unique_ptr<Rendezvous>> met) {
    ASSERT_TRUE(met.ok()) << met.status();
    for (int round = 0; round < 3; ++round) {
      const auto all = (*met)->AllGather(absl::StrCat("r", rank, " ", round), kTimeout);
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ(all->size(), 5u);
      for (int r = 0; r < 5; ++r) EXPECT_EQ((*all)[r], absl::StrCat("r", r, " ", round));
    }
    EXPECT_TRUE((*met)->Poll().ok());
  });
}

TEST_F(RendezvousTest, AtAGivenAddress) {
  int port = 0;
  {
    const absl::StatusOr<Socket> listener = Listen("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    port = PortOf(*listener);
  }
  Run(
      3,
      [](int rank, absl::StatusOr<std::unique_ptr<Rendezvous>> met) {
        ASSERT_TRUE(met.ok()) << met.status();
        const auto all = (*met)->AllGather(std::string(128, static_cast<char>(rank)), kTimeout);
        ASSERT_TRUE(all.ok()) << all.status();
        EXPECT_EQ((*all)[2], std::string(128, '\2'));
      },
      absl::StrCat("localhost:", port));
}

// What an earlier job of the same name left behind: a file whose port is free, or is now another
// program's, or belongs to a job with another token.
TEST_F(RendezvousTest, AStaleFileDoesNoHarm) {
  const absl::StatusOr<std::string> path = AddressPath("job/1");
  ASSERT_TRUE(path.ok()) << path.status();
  const absl::StatusOr<Socket> other = Listen("127.0.0.1", 0);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(WriteAddress(*path, {.port = PortOf(*other), .token = "old"}).ok());
  std::thread guest([] {
    const auto met = Rendezvous::Meet(Where(1, 2), kTimeout);
    ASSERT_TRUE(met.ok()) << met.status();
    EXPECT_TRUE((*met)->AllGather("1", kTimeout).ok());
  });
  ASSERT_TRUE(Accept(*other, Deadline::max()).has_value());  // and hung up on
  const auto met = Rendezvous::Meet(Where(0, 2), kTimeout);
  ASSERT_TRUE(met.ok()) << met.status();
  EXPECT_TRUE((*met)->AllGather("0", kTimeout).ok());
  guest.join();
  EXPECT_FALSE(ReadAddress(*path).ok());  // it has served
}

TEST_F(RendezvousTest, StrangersAreHungUpOn) {
  const absl::StatusOr<std::string> path = AddressPath("job/1");
  ASSERT_TRUE(path.ok()) << path.status();
  std::thread host([] {
    const auto met = Rendezvous::Meet(Where(0, 2), kTimeout);
    EXPECT_TRUE(met.ok()) << met.status();
  });
  absl::StatusOr<LocalAddress> address = ReadAddress(*path);
  while (!address.ok()) address = ReadAddress(*path);
  for (const char* hello : {"GET / HTTP/1.1", "nanospeed-1 guess 1 2", ""}) {
    absl::StatusOr<Link> stranger = Connect("127.0.0.1", address->port);
    ASSERT_TRUE(stranger.ok()) << stranger.status();
    stranger->Send({.kind = 'H', .text = hello});
    EXPECT_FALSE(stranger->Receive(Deadline::max()).ok());
  }
  const auto met = Rendezvous::Meet(Where(1, 2), kTimeout);
  EXPECT_TRUE(met.ok()) << met.status();
  host.join();
}

TEST_F(RendezvousTest, C4_MissingRanksAreNamed) {
  std::thread guest([] {
    const auto met = Rendezvous::Meet(Where(2, 4), kTimeout);
    EXPECT_EQ(met.status().code(), absl::StatusCode::kUnavailable) << met.status();
    EXPECT_TRUE(Has(met.status(), "not called by rank 1, 3")) << met.status();
  });
  const auto met = Rendezvous::Meet(Where(0, 4), absl::Milliseconds(500));
  EXPECT_EQ(met.status().code(), absl::StatusCode::kDeadlineExceeded) << met.status();
  EXPECT_TRUE(Has(met.status(), "not called by rank 1, 3")) << met.status();
  guest.join();
  const auto alone = Rendezvous::Meet(Where(1, 4), absl::Milliseconds(100));
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kDeadlineExceeded) << alone.status();
  EXPECT_TRUE(Has(alone.status(), "rank 1 of 4 did not reach rank 0")) << alone.status();
}

TEST_F(RendezvousTest, OtherSizesAndTwiceTheSameRank) {
  for (const ProcessRank& second : {Where(1, 2), Where(1, 3)}) {
    std::thread host([] {
      const auto met = Rendezvous::Meet(Where(0, 3), kTimeout);
      EXPECT_EQ(met.status().code(), absl::StatusCode::kInvalidArgument) << met.status();
    });
    std::thread first([&] {
      const auto met = Rendezvous::Meet(Where(1, 3), absl::Seconds(1));
      EXPECT_FALSE(met.ok());
    });
    const auto met = Rendezvous::Meet(second, absl::Seconds(1));
    EXPECT_FALSE(met.ok());
    const bool same = second.size == 3;
    EXPECT_TRUE(Has(met.status(), same ? "two processes were started as rank 1 of 3" : "of 3"))
        << met.status();
    host.join();
    first.join();
  }
}

TEST_F(RendezvousTest, SeveralHostsNeedAnAddress) {
  ProcessRank where = Where(0, 4);
  where.local_size = 2;
  const auto met = Rendezvous::Meet(where, kTimeout);
  EXPECT_EQ(met.status().code(), absl::StatusCode::kFailedPrecondition) << met.status();
  EXPECT_TRUE(Has(met.status(), "MASTER_ADDR")) << met.status();
}

TEST_F(RendezvousTest, TheFolderIsOneUsersOwn) {
  const absl::StatusOr<std::string> path = AddressPath("x");
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string folder = path->substr(0, path->rfind('/'));
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_EQ(AddressPath("x").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RendezvousTest, C4_ReasonsTravel) {
  Run(4, [](int rank, absl::StatusOr<std::unique_ptr<Rendezvous>> met) {
    ASSERT_TRUE(met.ok()) << met.status();
    if (rank == 2) (*met)->GiveUp(absl::DataLossError("shard 7 is torn"));
    const absl::Status failure = FailureOf(**met);
    EXPECT_EQ(failure.code(), absl::StatusCode::kUnavailable) << failure;
    EXPECT_TRUE(Has(failure, "rank 2 gave up")) << failure;
    EXPECT_TRUE(Has(failure, "shard 7 is torn")) << failure;
    EXPECT_FALSE((*met)->AllGather("x", kTimeout).ok());
  });
}

TEST_F(RendezvousTest, LeavingInGoodOrderIsNoFailure) {
  Run(3, [](int rank, absl::StatusOr<std::unique_ptr<Rendezvous>> met) {
    ASSERT_TRUE(met.ok()) << met.status();
    ASSERT_TRUE((*met)->AllGather("x", kTimeout).ok());
    if (rank != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE((*met)->Poll().ok()) << (*met)->Poll();
  });
}

// The process of a rank is killed: its connections close without a word.
TEST_F(RendezvousTest, C4_ALostRankIsNamed) {
  const absl::StatusOr<std::string> path = AddressPath("job/1");
  ASSERT_TRUE(path.ok()) << path.status();
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([rank] {
      const auto met = Rendezvous::Meet(Where(rank, 3), kTimeout);
      ASSERT_TRUE(met.ok()) << met.status();
      const absl::Status failure = FailureOf(**met);
      EXPECT_TRUE(Has(failure, "rank 2 is gone")) << failure;
    });
  }
  absl::StatusOr<LocalAddress> address = ReadAddress(*path);
  while (!address.ok()) address = ReadAddress(*path);
  absl::StatusOr<Link> killed = Connect("127.0.0.1", address->port);
  ASSERT_TRUE(killed.ok()) << killed.status();
  killed->Send({.kind = 'H', .text = absl::StrCat("nanospeed-1 ", address->token, " 2 3")});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(killed->Receive(Deadline::max()).ok());
  killed->Close();
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace comm
