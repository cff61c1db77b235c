#include "sched/momentum.h"

#include <limits>

#include "gtest/gtest.h"

namespace sched {
namespace {

TEST(Momentum, T1_45_RecordA) {
  EXPECT_EQ(MomentumAt(MomentumSchedule(), 0), 0.85);
  EXPECT_NEAR(MomentumAt(MomentumSchedule(), 100), 0.883333, 5.1e-7);  // 6 printed decimals
  EXPECT_NEAR(MomentumAt(MomentumSchedule(), 150), 0.90, 1e-15);
  EXPECT_EQ(MomentumAt(MomentumSchedule(), 300), 0.95);
}

// Two float64 roundings of values below 1 each way.
TEST(Momentum, WarmUpIsALineThenConstant) {
  for (int64_t step = 0; step <= 300; ++step) {
    ASSERT_NEAR(MomentumAt(MomentumSchedule(), step), 0.85 + 0.1 * step / 300, 1e-15) << step;
  }
  for (const int64_t step : {int64_t{301}, int64_t{546}, int64_t{1679}, int64_t{1} << 62}) {
    EXPECT_EQ(MomentumAt(MomentumSchedule(), step), 0.95) << step;
  }
}

TEST(Momentum, S4_ShortestAndVeryLongWarmUp) {
  const MomentumSchedule shortest{.warmup_steps = 1};
  EXPECT_EQ(MomentumAt(shortest, 0), 0.85);
  EXPECT_EQ(MomentumAt(shortest, 1), 0.95);
  const MomentumSchedule as_the_run{.warmup_steps = 1680};
  EXPECT_LT(MomentumAt(as_the_run, 1679), 0.95);
  EXPECT_EQ(MomentumAt(as_the_run, 1680), 0.95);
}

TEST(Momentum, RefusesValuesOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Validate(MomentumSchedule{.warmup_steps = 0}).message(),
            "momentum schedule: warmup_steps is 0; the least is 1");
  EXPECT_FALSE(Validate(MomentumSchedule{.start = -0.1}).ok());
  EXPECT_FALSE(Validate(MomentumSchedule{.end = 1}).ok());
  EXPECT_FALSE(Validate(MomentumSchedule{.end = nan}).ok());
  EXPECT_TRUE(Validate(MomentumSchedule()).ok());
}

}  // namespace
}  // namespace sched
