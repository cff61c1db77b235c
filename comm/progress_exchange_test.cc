#include "comm/progress_exchange.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(1500);

void Sleep(absl::Duration duration) {
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(duration));
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ranks as processes, so that they can be killed and stopped. Each writes its report into a file.
class ProgressExchangeTest : public testing::Test {
 protected:
  ProgressExchangeTest() {
    folder_ = absl::StrCat(testing::TempDir(), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    mkdir(folder_.c_str(), 0700);
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  ~ProgressExchangeTest() override {
    for (const pid_t process : processes_) {
      kill(process, SIGCONT);
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }

  // `body` runs in a process of its own once all ranks have met; afterwards the rank waits for a
  // failure and collects the report.
  using Body = std::function<void(int rank, FlightRecord& record, Rendezvous& rendezvous)>;
  void Start(int size, const Body& body) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t process = fork();
      ASSERT_GE(process, 0);
      if (process == 0) _exit(RunRank(rank, size, body));
      processes_.push_back(process);
    }
  }

  int RunRank(int rank, int size, const Body& body) {
    ProcessRank where;
    where.rank = where.local_rank = rank;
    where.size = where.local_size = size;
    where.job = "exchange";
    const auto met = Rendezvous::Meet(where, absl::Seconds(20));
    if (!met.ok()) return 3;
    std::ofstream(MetPath(rank)) << rank;
    FlightRecord record(rank);
    record.Finish(record.Start("all_reduce(first, f32 x 1, sum)", 4));
    body(rank, record, **met);
    while ((*met)->Poll().ok()) Sleep(absl::Milliseconds(5));
    const double start = Now();
    const std::string report = CollectReport(**met, record, kPatience);
    const double seconds = Now() - start;
    const std::string path = ReportPath(rank);
    std::ofstream(path + ".part") << (*met)->Poll().message() << "\n" << report << seconds << "\n";
    return rename((path + ".part").c_str(), path.c_str()) == 0 ? 0 : 4;
  }

  std::string MetPath(int rank) const { return absl::StrCat(folder_, "/met", rank); }
  std::string ReportPath(int rank) const { return absl::StrCat(folder_, "/report", rank); }
  void Await(int rank) {
    int status = 0;
    ASSERT_EQ(waitpid(processes_[rank], &status, 0), processes_[rank]);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank;
    EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank;
  }
  std::string Report(int rank) const {
    std::stringstream text;
    text << std::ifstream(ReportPath(rank)).rdbuf();
    return text.str();
  }
  void ExpectInReport(int rank, const std::string& part) {
    EXPECT_TRUE(absl::StrContains(Report(rank), part)) << part << "\nnot in rank " << rank << "'s\n"
                                                       << Report(rank);
  }

  std::string folder_;
  std::vector<pid_t> processes_;
};

TEST_F(ProgressExchangeTest, AllRanksLearnWhoIsBehind) {
  Start(4, [](int rank, FlightRecord& record, Rendezvous& rendezvous) {
    if (rank == 2) return;  // never calls it
    record.Start("all_gather(w, bf16 x 8)", 16);
    if (rank == 3) rendezvous.GiveUp(absl::DeadlineExceededError("collective 1 has not ended"));
  });
  for (int rank = 0; rank < 4; ++rank) Await(rank);
  for (int rank = 0; rank < 4; ++rank) {
    ExpectInReport(rank, "rank 3 gave up");
    ExpectInReport(rank, "collective 1 has not ended");
    ExpectInReport(rank,
                   "differs: rank 2 is behind: it has not called collective 1, "
                   "all_gather(w, bf16 x 8), as ranks 0, 1 and 3 have");
  }
}

TEST_F(ProgressExchangeTest, C4_AKilledRankIsLost) {
  Start(4, [](int rank, FlightRecord& record, Rendezvous&) {
    record.Start("all_gather(w, bf16 x 8)", 16);
    if (rank == 1) raise(SIGKILL);
  });
  for (const int rank : {0, 2, 3}) Await(rank);
  for (const int rank : {0, 2, 3}) {
    ExpectInReport(rank, "rank 1 is gone");
    ExpectInReport(rank, "  rank 1 is lost");
    ExpectInReport(rank, "  rank 3 started 1 all_gather(w, bf16 x 8), 16 bytes");
  }
}

// A rank that was never there is another case: rendezvous_test.cc.
TEST_F(ProgressExchangeTest, C4_ARankKilledAtARandomTime) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 20; ++trial) {
    const int killed = static_cast<int>(random() % 4);
    const auto after = std::chrono::microseconds(random() % 30'000);
    Start(4, [](int, FlightRecord& record, Rendezvous& rendezvous) {
      while (rendezvous.Poll().ok()) record.Finish(record.Start("all_reduce(x, f32 x 1, sum)", 4));
    });
    while (access(MetPath(killed).c_str(), F_OK) != 0) Sleep(absl::Milliseconds(1));
    std::this_thread::sleep_for(after);
    const double start = Now();
    kill(processes_[killed], SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != killed) Await(rank);
    }
    EXPECT_LT(Now() - start, 10) << "trial " << trial;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != killed) ExpectInReport(rank, absl::StrCat("  rank ", killed, " is lost"));
    }
    waitpid(processes_[killed], nullptr, 0);
    processes_.clear();
    for (int rank = 0; rank < 4; ++rank) {
      remove(MetPath(rank).c_str());
      remove(ReportPath(rank).c_str());
    }
  }
}

TEST_F(ProgressExchangeTest, C4_WithoutRankZeroEachSaysWhatItKnows) {
  Start(3, [](int rank, FlightRecord& record, Rendezvous&) {
    record.Start("all_gather(w, bf16 x 8)", 16);
    if (rank == 0) raise(SIGKILL);
  });
  for (const int rank : {1, 2}) Await(rank);
  for (const int rank : {1, 2}) {
    ExpectInReport(rank, "rank 0 is gone");
    ExpectInReport(rank, "  rank 0 is lost");
    ExpectInReport(rank, absl::StrCat("  rank ", rank, " started 1 all_gather"));
    ExpectInReport(rank, absl::StrCat("  rank ", 3 - rank, " is not known of"));
  }
}

TEST_F(ProgressExchangeTest, C4_AStoppedRankIsSilentAndHoldsUpNobody) {
  Start(3, [](int rank, FlightRecord& record, Rendezvous& rendezvous) {
    if (rank == 2) raise(SIGSTOP);
    record.Start("all_gather(w, bf16 x 8)", 16);
    if (rank == 1) {
      Sleep(absl::Milliseconds(300));
      rendezvous.GiveUp(absl::DeadlineExceededError("collective 1 has not ended"));
    }
  });
  const double start = Now();
  for (const int rank : {0, 1}) Await(rank);
  EXPECT_LT(Now() - start, 10);
  for (const int rank : {0, 1}) ExpectInReport(rank, "differs: rank 2 is silent");
}

TEST_F(ProgressExchangeTest, C4_AStoppedRankZeroHoldsUpNobody) {
  Start(3, [](int rank, FlightRecord& record, Rendezvous& rendezvous) {
    if (rank == 0) raise(SIGSTOP);
    record.Start("all_gather(w, bf16 x 8)", 16);
    Sleep(absl::Milliseconds(300));
    rendezvous.GiveUp(absl::DeadlineExceededError("collective 1 has not ended"));
  });
  for (const int rank : {1, 2}) Await(rank);
  for (const int rank : {1, 2}) ExpectInReport(rank, "differs: rank 0 is silent");
}

TEST_F(ProgressExchangeTest, ARankThatWantsNoReportDoesNotWait) {
  Start(3, [](int rank, FlightRecord& record, Rendezvous& rendezvous) {
    if (rank != 2) return;
    rendezvous.GiveUp(absl::DataLossError("shard 7 is torn"));
    const double start = Now();
    const std::string report = CollectReport(rendezvous, record, absl::ZeroDuration());
    _exit(Now() - start < 0.5 && absl::StrContains(report, "rank 2 started 0") ? 0 : 5);
  });
  for (int rank = 0; rank < 3; ++rank) Await(rank);
  for (const int rank : {0, 1}) {
    ExpectInReport(rank, "shard 7 is torn");
    ExpectInReport(rank, "  rank 2 started 0 all_reduce(first, f32 x 1, sum)");
  }
}

TEST_F(ProgressExchangeTest, EightRanksWithLongRecords) {
  Start(8, [](int rank, FlightRecord& record, Rendezvous& rendezvous) {
    for (int i = 0; i < 1000; ++i) record.Start(std::string(1000, 'x'), 1);
    if (rank == 5) rendezvous.GiveUp(absl::DeadlineExceededError("stuck"));
  });
  for (int rank = 0; rank < 8; ++rank) Await(rank);
  for (int rank = 0; rank < 8; ++rank) {
    for (int other = 0; other < 8; ++other) {
      ExpectInReport(rank, absl::StrCat("  rank ", other, " started 1000 xxx"));
    }
    ExpectInReport(rank, "differs: nothing between the ranks");
  }
}

}  // namespace
}  // namespace comm
