#include "sched/validation.h"

#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"

namespace sched {
namespace {

std::vector<int64_t> Points(int64_t every, int64_t total) {
  const RunLength run{.scheduled_steps = total, .extension_steps = 0};
  std::vector<int64_t> points;
  for (int64_t step = 0; step <= total + 3 * every; ++step) {
    if (IsValidationStep({.every = every}, run, step)) points.push_back(step);
  }
  return points;
}

TEST(Validation, Every250Of2285StepsIs11Times) { EXPECT_EQ(Points(250, 2285).size(), 11u); }

TEST(Validation, S1_ShortRuns) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(Points(125, 0), (Steps{0}));
  EXPECT_EQ(Points(125, 1), (Steps{0, 1}));
  EXPECT_EQ(Points(1, 2), (Steps{0, 1, 2}));
  EXPECT_EQ(Points(5, 10), (Steps{0, 5, 10}));  // the last one only once
}

TEST(Validation, CountAgreesWithThePoints) {
  for (int64_t every = 1; every <= 7; ++every) {
    for (int64_t total = 0; total <= 30; ++total) {
      const RunLength run{.scheduled_steps = total, .extension_steps = 0};
      EXPECT_EQ(ValidationCount({.every = every}, run),
                static_cast<int64_t>(Points(every, total).size()))
          << every << " " << total;
    }
  }
}

TEST(Validation, RefusesACadenceBelow1) {
  EXPECT_EQ(Validate(ValidationSchedule{.every = 0}).message(),
            "validation: every 0 steps; the least is 1");
  EXPECT_TRUE(Validate(ValidationSchedule{.every = 1}).ok());
}

}  // namespace
}  // namespace sched
