#include "sched/learning_rate.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/toy.h"

namespace sched {
namespace {

double ToyMultiplier(int64_t step) {
  return LearningRateMultiplier(ToyLearningRate(), ToyRun(), step);
}

// The reference prints 8 decimals; half a unit of the last one.
constexpr double kEightDecimals = 5.1e-9;

// The closed form of the cooldown, 0.1 + 1.8 (1 - x), rounds differently in a few places only.
TEST(LearningRate, CooldownIsALine) {
  for (int64_t step = 820; step < 1640; ++step) {
    const double x = static_cast<double>(step) / 1640;
    ASSERT_NEAR(ToyMultiplier(step), 0.1 + 1.8 * (1 - x), 1e-15) << step;
    ASSERT_LE(ToyMultiplier(step + 1), ToyMultiplier(step)) << step;
  }
}

// By the scheduled steps, however many follow.
TEST(LearningRate, OtherLengths) {
  const LearningRateSchedule schedule = ToyLearningRate();
  const RunLength fixed{.scheduled_steps = 2245, .extension_steps = 40};
  const RunLength unfixed{.scheduled_steps = 2285, .extension_steps = 0};
  constexpr double kSixDecimals = 5.1e-7;
  EXPECT_EQ(LearningRateMultiplier(schedule, fixed, 1122), 1);
  EXPECT_NEAR(LearningRateMultiplier(schedule, fixed, 1123), 0.99959911, kEightDecimals);
  EXPECT_NEAR(LearningRateMultiplier(schedule, fixed, 2244), 0.10080178, kEightDecimals);
  EXPECT_NEAR(LearningRateMultiplier(schedule, fixed, 2284), 0.10018, kEightDecimals);
  EXPECT_EQ(LearningRateMultiplier(schedule, unfixed, 1142), 1);
  EXPECT_NEAR(LearningRateMultiplier(schedule, unfixed, 1143), 0.999606, kSixDecimals);
  EXPECT_NEAR(LearningRateMultiplier(schedule, unfixed, 2284), 0.100788, kSixDecimals);
  const LearningRateSchedule shorter{.cooldown_fraction = 0.45, .floor = 0.1};
  const RunLength longer{.scheduled_steps = 2275, .extension_steps = 40};
  EXPECT_EQ(LearningRateMultiplier(shorter, longer, 1251), 1);
  EXPECT_LT(LearningRateMultiplier(shorter, longer, 1252), 1);
  EXPECT_NEAR(LearningRateMultiplier(shorter, longer, 1273), 0.980879, kSixDecimals);
  EXPECT_NEAR(LearningRateMultiplier(shorter, longer, 2314), 0.1002, kSixDecimals);
}

TEST(LearningRate, S1_CooldownFraction0NeverCools) {
  const LearningRateSchedule schedule{.cooldown_fraction = 0};
  for (const int64_t step : {0, 820, 1639, 1640, 1680, 5000}) {
    EXPECT_EQ(LearningRateMultiplier(schedule, ToyRun(), step), 1) << step;
  }
}

TEST(LearningRate, S1_CooldownFraction1CoolsFromTheStart) {
  const LearningRateSchedule schedule{.cooldown_fraction = 1, .floor = 0.1};
  EXPECT_EQ(LearningRateMultiplier(schedule, ToyRun(), 0), 1);
  EXPECT_LT(LearningRateMultiplier(schedule, ToyRun(), 1), 1);
  EXPECT_NEAR(LearningRateMultiplier(schedule, ToyRun(), 820), 0.55, 1e-15);
  // w = 0.0001 where x stops.
  EXPECT_NEAR(LearningRateMultiplier(schedule, ToyRun(), 1640), 0.10009, 1e-15);
}

TEST(LearningRate, S1_RunsOf0And1And2Steps) {
  for (const int64_t scheduled : {0, 1, 2}) {
    for (const double fraction : {0.0, 1e-5, 0.5, 1.0}) {
      const LearningRateSchedule schedule{.cooldown_fraction = fraction, .floor = 0.1};
      const RunLength run{.scheduled_steps = scheduled, .extension_steps = 0};
      for (int64_t step = 0; step <= 4; ++step) {
        const double multiplier = LearningRateMultiplier(schedule, run, step);
        EXPECT_GE(multiplier, 0.1) << scheduled << " " << fraction << " " << step;
        EXPECT_LE(multiplier, 1) << scheduled << " " << fraction << " " << step;
      }
    }
  }
  const RunLength none{.scheduled_steps = 0, .extension_steps = 0};
  EXPECT_NEAR(LearningRateMultiplier(ToyLearningRate(), none, 0), 0.10018, 1e-15);
}

TEST(LearningRate, S3_PastTheEndStaysAtTheFloor) {
  for (const int64_t step : {int64_t{1680}, int64_t{1681}, int64_t{100000}, int64_t{1} << 62}) {
    EXPECT_EQ(ToyMultiplier(step), ToyMultiplier(1640)) << step;
  }
}

TEST(LearningRate, StagesBeginAfterTheirFirstStep) {
  const LearningRateSchedule schedule{
      .cooldown_fraction = 0.25, .floor = 0.1, .stage_factors = {1, 3, 2, 5}};
  const RunLength run{.scheduled_steps = 8, .extension_steps = 2};
  const double expected[] = {1, 1, 1, 3, 3, 2, 2, 2.55};  // the last: 5 / 2 + 0.1 / 2
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_NEAR(LearningRateMultiplier(schedule, run, step), expected[step], 1e-15) << step;
  }
}

TEST(LearningRate, ReachesTheFloorExactlyIfToldTo) {
  const LearningRateSchedule schedule{
      .cooldown_fraction = 0.5, .floor = 0.1, .stage_factors = {1, 7}, .reaches_floor = true};
  for (const int64_t step : {1640, 1641, 1680, 5000}) {
    EXPECT_EQ(LearningRateMultiplier(schedule, ToyRun(), step), 0.1) << step;
  }
  // Up to the last step, where x is far enough from 0.9999, one factor makes no difference.
  const LearningRateSchedule plain{.cooldown_fraction = 0.5, .floor = 0.1, .reaches_floor = true};
  for (int64_t step = 0; step < 1640; ++step) {
    ASSERT_EQ(LearningRateMultiplier(plain, ToyRun(), step), ToyMultiplier(step)) << step;
  }
  const RunLength none{.scheduled_steps = 0, .extension_steps = 0};
  EXPECT_EQ(LearningRateMultiplier(schedule, none, 0), 0.1);
}

TEST(LearningRate, S1_WithoutACooldownTheFloorIsNotReached) {
  const LearningRateSchedule schedule{
      .cooldown_fraction = 0, .stage_factors = {1, 1.5}, .reaches_floor = true};
  for (const int64_t step : {821, 1639, 1640, 1680, 5000}) {
    EXPECT_EQ(LearningRateMultiplier(schedule, ToyRun(), step), 1.5) << step;
  }
}

TEST(LearningRate, RefusesValuesOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 1.5, nan}) {
    EXPECT_EQ(Validate(LearningRateSchedule{.cooldown_fraction = bad}).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Validate(LearningRateSchedule{.floor = bad}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Validate(LearningRateSchedule{.cooldown_fraction = 1.5}).message(),
            "learning rate schedule: cooldown_fraction 1.5 is outside [0, 1]");
  EXPECT_TRUE(Validate(LearningRateSchedule{.cooldown_fraction = 0, .floor = 1}).ok());
  for (const double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
    const LearningRateSchedule schedule{.stage_factors = {1, bad}};
    EXPECT_EQ(Validate(schedule).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(Validate(LearningRateSchedule{.stage_factors = {}}).ok());
}

}  // namespace
}  // namespace sched
