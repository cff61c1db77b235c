// The schedules of the mainline after ANVIL (modded-nanogpt, pull request 360) against its tables,
// and the parts that they are made of.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sched/parts.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using sched::BatchStart;
using sched::BatchStarts;
using sched::FirstStepFrom;
using sched::LastTiedStep;
using sched::PlanStep;
using sched::Schedules;
using sched::StageStarts;
using sched::StepPlan;
using sched::TrainingTokens;
using sched::Validate;
using sched::WindowChanges;

// The third stage ends in a taper.
std::vector<int64_t> Starts(int64_t base_steps) {
  return StageStarts({0.2854, 0.3209, 0.3931 - 0.06, 0.06}, base_steps, 2, 52);
}

Schedules Record() { return FindRecipe("anvil", "full", 50304)->schedules; }

StepPlan PlanAt(int64_t step) { return PlanStep(Record(), step); }

// Half a unit of the last printed digit.
constexpr double kSixDecimals = 5.1e-7;

TEST(AnvilSchedules, AN_01_StagesAndSteps) {
  EXPECT_EQ(Starts(1122), (std::vector<int64_t>{0, 320, 681, 1107, 1174}));
  EXPECT_EQ(Starts(1060), (std::vector<int64_t>{0, 303, 643, 1048, 1112}));
  const Schedules m = Record();
  ASSERT_TRUE(Validate(m).ok()) << Validate(m);
  EXPECT_EQ(m.run.total(), 1194);
  EXPECT_EQ(BatchStarts(m.batch, m.run),
            (std::vector<BatchStart>{
                {0, 131072}, {320, 262144}, {681, 393216}, {1107, 327680}, {1174, 131072}}));
  EXPECT_EQ(WindowChanges(m.window, m.run), (std::vector<int64_t>{320, 681, 1174, 1194}));
}

TEST(AnvilSchedules, AN_02_AN_03_TheTable) {
  const struct {
    int64_t step;
    double multiplier, momentum;
  } rows[] = {{0, 1, 0.85},           {1, 1, 0.850333},
              {100, 1, 0.883333},     {235, 0.999255, 0.928333},
              {240, 0.995532, 0.93},  {319, 0.936702, 0.93},
              {320, 1.408383, 0.93},  {337, 1.386319, 0.93},
              {339, 1.383723, 0.93},  {514, 1.156596, 0.93},
              {600, 1.044979, 0.93},  {680, 0.941149, 0.93},
              {681, 1.049989, 0.93},  {800, 0.868957, 0.93},
              {1000, 0.564702, 0.93}, {1106, 0.403447, 0.93},
              {1107, 0.391182, 0.93}, {1145, 0.339467, 0.9284},
              {1174, 0.30, 0.882},    {1175, 0.30, 0.8804},
              {1193, 0.30, 0.8516}};
  for (const auto& row : rows) {
    EXPECT_NEAR(PlanAt(row.step).lr_multiplier, row.multiplier, kSixDecimals) << row.step;
    EXPECT_NEAR(PlanAt(row.step).momentum, row.momentum, kSixDecimals) << row.step;
  }
}

TEST(AnvilSchedules, AN_02_CooldownAndFloor) {
  for (int64_t step = 0; step <= 234; ++step) ASSERT_EQ(PlanAt(step).lr_multiplier, 1) << step;
  EXPECT_LT(PlanAt(235).lr_multiplier, 1);
  double largest = 0;
  int64_t at = -1;
  for (int64_t step = 0; step <= 1200; ++step) {
    const double multiplier = PlanAt(step).lr_multiplier;
    ASSERT_GE(multiplier, 0.3) << step;
    if (step >= 1174) {
      ASSERT_EQ(multiplier, 0.3) << step;
    }
    if (multiplier > largest) at = step;
    largest = std::max(largest, multiplier);
  }
  EXPECT_EQ(at, 320);
  EXPECT_NEAR(largest, 1.408383, kSixDecimals);
}

TEST(AnvilSchedules, AN_03_RailBeta) {
  for (int64_t step = 240; step <= 1144; ++step) ASSERT_EQ(PlanAt(step).momentum, 0.93) << step;
}

TEST(AnvilSchedules, LossWeightsFadeWithinTheirStages) {
  EXPECT_EQ(PlanAt(0).loss_weights, (std::vector<float>{1, 0.5f, 0.25f}));
  EXPECT_EQ(PlanAt(160).loss_weights, (std::vector<float>{1, 0.5f, 0.125f}));
  EXPECT_EQ(PlanAt(319).loss_weight_count, 3);
  EXPECT_NEAR(PlanAt(319).loss_weights[2], 0.25 / 320, 1e-9);
  EXPECT_EQ(PlanAt(320).loss_weights, (std::vector<float>{1, 0.5f, 0}));
  EXPECT_NEAR(PlanAt(500).loss_weights[1], 0.5 * (1 - 180.0 / 361), 1e-7);
  EXPECT_EQ(PlanAt(680).loss_weight_count, 2);
  EXPECT_EQ(PlanAt(681).loss_weight_count, 1);
}

TEST(AnvilSchedules, AN_27_SplitStep) {
  EXPECT_EQ(LastTiedStep(Record().tying, Record().run), 1175);
  int updates = 0;
  for (int64_t step = 1176; step < 1194; ++step) updates += step % 2;
  EXPECT_EQ(updates, 9);
}

TEST(AnvilSchedules, AN_39_Tokens) {
  const Schedules m = Record();
  EXPECT_EQ(TrainingTokens(m.batch, m.run), 328'663'040);
}

TEST(AnvilSchedules, EveryShortRunIsFinite) {
  for (int64_t total = 0; total <= 30; ++total) {
    const Schedules schedules = sched::Rescaled(Record(), total);
    ASSERT_TRUE(Validate(schedules).ok()) << total;
    for (int64_t step = 0; step <= total + 2; ++step) {
      const StepPlan plan = PlanStep(schedules, step);
      EXPECT_GE(plan.lr_multiplier, 0.3) << total << " " << step;
      EXPECT_LE(plan.lr_multiplier, 1.73) << total << " " << step;
      EXPECT_GE(plan.loss_weights[2], 0) << total << " " << step;
      EXPECT_LE(plan.loss_weights[1], 0.5) << total << " " << step;
      EXPECT_GT(plan.batch_tokens, 0) << total << " " << step;
    }
    EXPECT_EQ(PlanStep(schedules, total).lr_multiplier, 0.3) << total;
  }
}

// However a run is rescaled, the parts of all schedules start together.
TEST(AnvilSchedules, BatchAndWindowsChangeTogether) {
  for (int64_t steps = 1; steps <= 1300; steps += 7) {
    const Schedules m = sched::Rescaled(Record(), steps);
    const int64_t second = FirstStepFrom(m.window.part_ends[0], m.run);
    if (second == 0 || second >= m.run.scheduled_steps) continue;
    EXPECT_EQ(PlanStep(m, second - 1).batch_tokens, 131'072) << steps;
    EXPECT_GT(PlanStep(m, second).batch_tokens, 131'072) << steps;
    EXPECT_EQ(PlanStep(m, second - 1).windows.yarn_blocks, 3) << steps;
    EXPECT_GT(PlanStep(m, second).windows.yarn_blocks, 3) << steps;
    EXPECT_EQ(PlanStep(m, second - 1).loss_weight_count, 3) << steps;
    EXPECT_LT(PlanStep(m, second).loss_weight_count, 3) << steps;
  }
}

TEST(AnvilSchedules, ReportsItsBadParts) {
  const auto message = [](void (*change)(Schedules*)) {
    Schedules schedules = Record();
    change(&schedules);
    return std::string(Validate(schedules).message());
  };
  EXPECT_EQ(message([](Schedules* s) { s->window.part_ends.pop_back(); }),
            "window schedule: 1 ends of 3 parts; all but the last have one");
  EXPECT_EQ(message([](Schedules* s) {
              s->multi_token.part_ends = {0.5, 0.25};
            }),
            "multi-token schedule: the end of part 1 is 0.25; it must lie above 0.5 and below 1");
  EXPECT_EQ(message([](Schedules* s) {
              s->learning_rate.stage_ends[0] = std::numeric_limits<double>::quiet_NaN();
            }),
            "learning rate schedule: the end of part 0 is nan; it must lie above 0 and below 1");
  EXPECT_EQ(message([](Schedules* s) { s->learning_rate.reaches_floor = false; }),
            "learning rate schedule: cools_from_whole_step needs reaches_floor and goes without "
            "cools_in_extension");
  EXPECT_EQ(message([](Schedules* s) { s->batch.stages[1].fraction = 0; }),
            "batch schedule: stage 1 has fraction 0 and 262144 tokens; both must be positive");
}

}  // namespace
}  // namespace tools
