#include "sched/batch_size.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"

namespace sched {
namespace {

TEST(BatchSize, StagesSwitchAtTheirFractions) {
  const BatchSchedule schedule{.stages = {{0.25, 100}, {0.5, 200}, {0.25, 400}}};
  ASSERT_TRUE(Validate(schedule).ok());
  const RunLength run{.scheduled_steps = 40, .extension_steps = 3};
  EXPECT_EQ(BatchTokensAt(schedule, run, 0), 100);
  EXPECT_EQ(BatchTokensAt(schedule, run, 9), 100);
  EXPECT_EQ(BatchTokensAt(schedule, run, 10), 200);
  EXPECT_EQ(BatchTokensAt(schedule, run, 29), 200);
  EXPECT_EQ(BatchTokensAt(schedule, run, 30), 400);
  EXPECT_EQ(BatchTokensAt(schedule, run, 42), 400);
  EXPECT_EQ(BatchTokensAt(schedule, run, 999), 400);
}

TEST(BatchSize, TrainingTokensIsTheSumOverSteps) {
  const BatchSchedule schedule{.stages = {{1.0 / 3, 10}, {1.0 / 3, 70}, {1.0 / 3, 300}}};
  ASSERT_TRUE(Validate(schedule).ok());
  for (int64_t scheduled = 0; scheduled <= 30; ++scheduled) {
    const RunLength run{.scheduled_steps = scheduled, .extension_steps = 2};
    int64_t sum = 0;
    for (int64_t step = 0; step < run.total(); ++step) sum += BatchTokensAt(schedule, run, step);
    EXPECT_EQ(TrainingTokens(schedule, run), sum) << scheduled;
  }
}

// Against a look at every step; very short runs leave stages out.
TEST(BatchSize, StartsAgreeWithAReplay) {
  const std::vector<BatchStage> lists[] = {{{1, 5}},
                                           {{1.0 / 3, 10}, {1.0 / 3, 70}, {1.0 / 3, 300}},
                                           {{0.25, 10}, {0.25, 10}, {0.25, 20}, {0.25, 10}}};
  for (const std::vector<BatchStage>& stages : lists) {
    const BatchSchedule schedule{.stages = stages};
    for (int64_t scheduled = 0; scheduled <= 30; ++scheduled) {
      const RunLength run{.scheduled_steps = scheduled, .extension_steps = scheduled % 3};
      std::vector<BatchStart> starts = {{0, BatchTokensAt(schedule, run, 0)}};
      for (int64_t step = 1; step < run.total(); ++step) {
        const int64_t tokens = BatchTokensAt(schedule, run, step);
        if (tokens != starts.back().tokens) starts.push_back({step, tokens});
      }
      EXPECT_EQ(BatchStarts(schedule, run), starts) << scheduled;
    }
  }
}

TEST(BatchSize, S6_FractionsThatDoNotSumTo1) {
  const absl::Status status = Validate(BatchSchedule{.stages = {{0.5, 1}, {0.25, 2}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "batch schedule: the fractions of its 2 stages sum to 0.75; they must sum to 1");
  EXPECT_FALSE(Validate(BatchSchedule{.stages = {{0.75, 1}, {0.5, 2}}}).ok());
}

TEST(BatchSize, RefusesEmptyStages) {
  EXPECT_FALSE(Validate(BatchSchedule{.stages = {}}).ok());
  EXPECT_FALSE(Validate(BatchSchedule{.stages = {{1, 0}}}).ok());
  EXPECT_FALSE(Validate(BatchSchedule{.stages = {{0, 1}, {1, 1}}}).ok());
}

}  // namespace
}  // namespace sched
