// Ranks that die, or do not come back, and how the process ends then.
#include "tools/trainer/ranks.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"
#include "tools/trainer/exit_code.h"

// For TSan: the process ends on purpose while threads of it have not been joined.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }

namespace tools {
namespace {

using comm::Communicator;
using kernels::DType;
using kernels::testing::HostTensor;

TrainConfig Config(int world_size, absl::Duration timeout) {
  TrainConfig config;
  config.world_size = world_size;
  config.comm_timeout = timeout;
  return config;
}

absl::Status AllReduce(Communicator& comm, const char* label) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  const HostTensor x(DType::kF32, {3});
  return comm.AllReduce(label, x, comm::ReduceOp::kSum, *queue).Wait(*queue);
}

// A rank that hangs does so for longer than a test may take.
void Hang() { std::this_thread::sleep_for(std::chrono::hours(1)); }

TEST(Ranks, ARankThatLeavesEarlyIsCodeTwoAndAReport) {
  const absl::Status status = RunRanks(Config(4, absl::Seconds(60)), [](Communicator& comm, int) {
    const absl::Status first = AllReduce(comm, "first");
    return comm.rank() == 2 || !first.ok() ? first : AllReduce(comm, "second");
  });
  EXPECT_EQ(ExitCode(status), 2) << status;
  EXPECT_TRUE(absl::StartsWith(
      status.message(), "rank 2 is gone, in collective 1, all_reduce(second, f32 x 3, sum)\n"))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "  differs: rank 2 has left in good order"))
      << status;
}

TEST(Ranks, ARankThatSleepsTooLongIsNamed) {
  const absl::Status status = RunRanks(Config(3, absl::Seconds(1)), [](Communicator& comm, int) {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    return AllReduce(comm, "loss");
  });
  EXPECT_EQ(ExitCode(status), 2) << status;
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "  differs: rank 1 is behind: it has not called collective 0, "
                                "all_reduce(loss, f32 x 3, sum), as ranks 0 and 2 have"))
      << status;
}

TEST(Ranks, ARanksOwnErrorIsTheRunsError) {
  const absl::Status status = RunRanks(Config(3, absl::Seconds(60)), [](Communicator& comm, int) {
    if (comm.rank() == 1) return absl::NotFoundError("shard 7 is missing");
    return AllReduce(comm, "loss");
  });
  EXPECT_EQ(status, absl::NotFoundError("shard 7 is missing"));
}

// It is in no collective, so that nothing can be told to it.
TEST(RanksDeathTest, ARankThatNeverComesBackEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EXIT((void)RunRanks(Config(3, absl::Seconds(1)),
                             [](Communicator& comm, int) {
                               if (comm.rank() == 1) Hang();
                               return AllReduce(comm, "loss");
                             }),
              testing::ExitedWithCode(2),
              "ranks_test: timeout after 1s in collective 0, .*\n"
              "  rank 0 started 0 all_reduce\\(loss, f32 x 3, sum\\).*\n"
              "  rank 1 has started no collective yet\n"
              "(.*\n)*  differs: rank 1 is behind(.*\n)*.*did not come back");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST(RanksDeathTest, ARankThatNeverComesBackAfterAnothersErrorEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((void)RunRanks(Config(2, absl::Seconds(60)),
                             [](Communicator& comm, int) -> absl::Status {
                               if (comm.rank() == 0) return absl::InternalError("loss is nan");
                               Hang();
                               return absl::OkStatus();
                             }),
              testing::ExitedWithCode(2), "rank 0 gave up: INTERNAL: loss is nan");
}

TEST(Ranks, ThreadsAreNotStartedByALauncher) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", "1", 1);
  const absl::StatusOr<Processes> processes = ProcessesOfRun();
  EXPECT_EQ(ExitCode(processes.status()), 1) << processes.status();
  EXPECT_TRUE(absl::StrContains(processes.status().message(), "torchrun started 4 processes"))
      << processes.status();
  EXPECT_TRUE(absl::StrContains(processes.status().message(), "--world_size=4"))
      << processes.status();
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  setenv("LOCAL_RANK", "0", 1);
  EXPECT_TRUE(ProcessesOfRun().ok());
}

}  // namespace
}  // namespace tools
