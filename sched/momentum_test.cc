#include "sched/momentum.h"

#include <limits>

#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/toy.h"

namespace sched {
namespace {

// Two float64 roundings of values below 1 each way.
TEST(Momentum, WarmUpIsALineThenConstant) {
  for (int64_t step = 0; step <= 300; ++step) {
    ASSERT_NEAR(MomentumAt(ToyMomentum(), ToyRun(), step), 0.85 + 0.1 * step / 300, 1e-15) << step;
  }
  for (const int64_t step : {int64_t{301}, int64_t{546}, int64_t{1679}, int64_t{1} << 62}) {
    EXPECT_EQ(MomentumAt(ToyMomentum(), ToyRun(), step), 0.95) << step;
  }
}

TEST(Momentum, S4_ShortestAndVeryLongWarmUp) {
  const MomentumSchedule shortest{.start = 0.85, .end = 0.95, .warmup_steps = 1};
  EXPECT_EQ(MomentumAt(shortest, ToyRun(), 0), 0.85);
  EXPECT_EQ(MomentumAt(shortest, ToyRun(), 1), 0.95);
  const MomentumSchedule as_the_run{.start = 0.85, .end = 0.95, .warmup_steps = 1680};
  EXPECT_LT(MomentumAt(as_the_run, ToyRun(), 1679), 0.95);
  EXPECT_EQ(MomentumAt(as_the_run, ToyRun(), 1680), 0.95);
}

// The warm-up comes first where the two meet.
TEST(Momentum, S4_CooldownLongerThanTheRun) {
  const RunLength run{.scheduled_steps = 8, .extension_steps = 2};
  const MomentumSchedule schedule{
      .start = 0.85, .end = 0.95, .warmup_steps = 4, .cooldown_steps = 20};
  EXPECT_EQ(MomentumAt(schedule, run, 0), 0.85);
  EXPECT_NEAR(MomentumAt(schedule, run, 3), 0.925, 1e-15);
  EXPECT_NEAR(MomentumAt(schedule, run, 4), 0.88, 1e-15);
  EXPECT_EQ(MomentumAt(schedule, run, 10), 0.85);
  EXPECT_EQ(MomentumAt(schedule, run, 11), 0.85);
}

TEST(Momentum, RefusesValuesOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Validate(MomentumSchedule{.warmup_steps = 0}).message(),
            "momentum schedule: warmup_steps is 0; the least is 1");
  EXPECT_EQ(Validate(MomentumSchedule{.cooldown_steps = -1}).message(),
            "momentum schedule: cooldown_steps is -1; the least is 0");
  EXPECT_FALSE(Validate(MomentumSchedule{.start = -0.1}).ok());
  EXPECT_FALSE(Validate(MomentumSchedule{.end = 1}).ok());
  EXPECT_FALSE(Validate(MomentumSchedule{.end = nan}).ok());
  EXPECT_TRUE(Validate(ToyMomentum()).ok());
}

}  // namespace
}  // namespace sched
