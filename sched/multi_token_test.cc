#include "sched/multi_token.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"

namespace sched {
namespace {

using Weights = std::vector<double>;

const RunLength kRun = {.scheduled_steps = 8, .extension_steps = 2};

TEST(MultiToken, TheDefaultIsTheNextToken) {
  EXPECT_EQ(MaxWeights(MultiTokenSchedule()), 1);
  for (const int64_t step : {0, 7, 8, 100}) {
    EXPECT_EQ(LossWeightsAt(MultiTokenSchedule(), kRun, step), Weights{1}) << step;
  }
}

TEST(MultiToken, FadesInItsPartAndIsAbsentAfterwards) {
  const MultiTokenSchedule schedule{.parts = 2, .farther = {{0.5, 1}, {0.25, 0}, {0.125, 0}}};
  ASSERT_TRUE(Validate(schedule).ok()) << Validate(schedule);
  EXPECT_EQ(MaxWeights(schedule), 4);
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 0), (Weights{1, 0.5, 0.25, 0.125}));
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 1), (Weights{1, 0.5, 0.1875, 0.09375}));
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 3), (Weights{1, 0.5, 0.0625, 0.03125}));
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 4), (Weights{1, 0.5}));
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 7), (Weights{1, 0.125}));
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 8), Weights{1});
  EXPECT_EQ(LossWeightsAt(schedule, kRun, 1000), Weights{1});
}

TEST(MultiToken, S1_ARunOf0StepsIsComplete) {
  const MultiTokenSchedule schedule{.parts = 1, .farther = {{0.5, 0}}};
  EXPECT_EQ(LossWeightsAt(schedule, {.scheduled_steps = 0, .extension_steps = 0}, 0), Weights{1});
}

TEST(MultiToken, RefusesWhatIsNoFading) {
  EXPECT_EQ(Validate(MultiTokenSchedule{.parts = 0}).message(),
            "multi-token schedule: 0 parts; the least is 1");
  EXPECT_EQ(Validate(MultiTokenSchedule{.parts = 2, .farther = {{0.5, 2}}}).message(),
            "multi-token schedule: token 2 fades in part 2; it must be from 0 to 1, the last part, "
            "or that of the token before");
  EXPECT_EQ(Validate(MultiTokenSchedule{.parts = 2, .farther = {{0.5, 0}, {0.5, 1}}}).message(),
            "multi-token schedule: token 3 fades in part 1; it must be from 0 to 0, the last part, "
            "or that of the token before");
  EXPECT_FALSE(Validate(MultiTokenSchedule{.parts = 2, .farther = {{0.5, -1}}}).ok());
  for (const double bad : {0.0, -0.5, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    const MultiTokenSchedule schedule{.parts = 1, .farther = {{bad, 0}}};
    EXPECT_EQ(Validate(schedule).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace sched
