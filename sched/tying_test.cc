#include "sched/tying.h"

#include <limits>

#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/toy.h"

namespace sched {
namespace {

int64_t Last(double fraction, int64_t every, int64_t scheduled) {
  return LastTiedStep({.fraction = fraction, .update_every = every},
                      {.scheduled_steps = scheduled, .extension_steps = 1});
}

TEST(Tying, TheDefaultIsNeverTied) {
  for (const int64_t step : {0, 1, 1000}) {
    EXPECT_FALSE(IsTied(TyingSchedule(), ToyRun(), step)) << step;
  }
}

TEST(Tying, UO_28_EndsAfterAnUpdate) {
  EXPECT_EQ(Last(2.0 / 3, 2, 1725), 1151);
  EXPECT_EQ(Last(2.0 / 3, 2, 1726), 1151);  // 1150.67 up to 1151, which updates
  EXPECT_EQ(Last(2.0 / 3, 2, 1728), 1153);
  EXPECT_EQ(Last(2.0 / 3, 1, 1725), 1150);
  EXPECT_EQ(Last(2.0 / 3, 4, 1725), 1151);
  EXPECT_EQ(Last(2.0 / 3, 5, 1725), 1154);
  EXPECT_EQ(Last(1, 2, 10), 11);
}

TEST(Tying, IsTiedUpToThatStep) {
  const TyingSchedule schedule{.fraction = 0.5, .update_every = 2};
  const RunLength run{.scheduled_steps = 10, .extension_steps = 0};
  for (int64_t step = 0; step <= 12; ++step) {
    EXPECT_EQ(IsTied(schedule, run, step), step <= 5) << step;
  }
}

TEST(Tying, S1_ARunOf0Steps) { EXPECT_EQ(Last(2.0 / 3, 2, 0), 1); }

TEST(Tying, RefusesValuesOutsideTheirRange) {
  for (const double bad : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(Validate(TyingSchedule{.fraction = bad}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Validate(TyingSchedule{.fraction = 0.5, .update_every = 0}).message(),
            "tying schedule: update_every is 0; the least is 1");
  EXPECT_TRUE(Validate(TyingSchedule{.fraction = 1, .update_every = 2}).ok());
}

}  // namespace
}  // namespace sched
