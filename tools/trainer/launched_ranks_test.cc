#include "tools/trainer/launched_ranks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainConfig Config(int world_size, const char* device) {
  TrainConfig config;
  config.world_size = world_size;
  config.device = device;
  return config;
}

comm::ProcessRank Rank(int size) {
  comm::ProcessRank where;
  where.size = size;
  where.launcher = size > 1 ? "torchrun" : "";
  return where;
}

TEST(LaunchedRanks, WorldSizeIsThatOfTheLauncher) {
  EXPECT_TRUE(CheckWorldSize(Config(2, "cpu"), Rank(2), "mpirun").ok());
  EXPECT_THAT(std::string(CheckWorldSize(Config(4, "cpu"), Rank(2), "mpirun").message()),
              HasSubstr("--world_size=4, but torchrun started 2 ranks"));
  EXPECT_THAT(std::string(CheckWorldSize(Config(4, "cpu"), Rank(1), "mpirun").message()),
              HasSubstr("start it with mpirun"));
}

TEST(LaunchedRanks, F3_RanksOfNcclNeedGpus) {
  EXPECT_TRUE(CheckRanksHaveGpus(Config(1, "cpu"), Rank(1)).ok());
  EXPECT_TRUE(CheckRanksHaveGpus(Config(2, "cuda"), Rank(2)).ok());
  const absl::Status status = CheckRanksHaveGpus(Config(2, "cpu"), Rank(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--device=cpu on 2 ranks, which torchrun started"),
                    HasSubstr("need a GPU each"), HasSubstr("--world_size=2")));
}

}  // namespace
}  // namespace tools
