#include "sched/run_length.h"

#include "gtest/gtest.h"
#include "sched/toy.h"

namespace sched {
namespace {

TEST(RunLength, RefusesNegativeCounts) {
  const absl::Status status = Validate(RunLength{.scheduled_steps = 5, .extension_steps = -1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "run length: 5 scheduled and -1 extension steps; neither may be negative");
  EXPECT_FALSE(Validate(RunLength{.scheduled_steps = -1, .extension_steps = 0}).ok());
}

TEST(RunLength, RescaledKeepsTheSum) {
  for (int64_t total = 0; total <= 5000; ++total) {
    const RunLength run = Rescaled(ToyRun(), total);
    EXPECT_TRUE(Validate(run).ok()) << total;
    ASSERT_EQ(run.total(), total);
  }
}

TEST(RunLength, RescaledKeepsTheProportions) {
  EXPECT_EQ(Rescaled(ToyRun(), 1680).extension_steps, 40);
  EXPECT_EQ(Rescaled(ToyRun(), 840).extension_steps, 20);
  EXPECT_EQ(Rescaled(ToyRun(), 420).scheduled_steps, 410);
  EXPECT_EQ(Rescaled(ToyRun(), 63).extension_steps, 2);  // 1.5, halves up
  EXPECT_EQ(Rescaled(ToyRun(), 20).extension_steps, 0);  // 0.476
  EXPECT_EQ(Rescaled(ToyRun(), 21).extension_steps, 1);  // 0.5, halves up
}

// Products of step counts past 2^63 and past 2^53 stay exact.
TEST(RunLength, ScaledStepsOfLargeRuns) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(ScaledSteps(large, large, large), large);
  EXPECT_EQ(ScaledSteps(large, 2 * large, large + 2), large / 2 + 1);
}

}  // namespace
}  // namespace sched
