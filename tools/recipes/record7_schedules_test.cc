// The schedules of modded-nanogpt's track 2, record of 2025-04-16, against its tables.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using sched::InitialRotary;
using sched::PlanStep;
using sched::Rotary;
using sched::RotaryAt;
using sched::Schedules;
using sched::StepPlan;
using sched::TrainingTokens;
using sched::Validate;
using sched::ValidationCount;
using sched::WindowChanges;
using sched::Windows;
using sched::WindowsAt;
using sched::YarnHistory;

constexpr int64_t kSteps = 6450;

Schedules Record() { return FindRecipe("record7", "full", 50304)->schedules; }

StepPlan PlanAt(int64_t step) { return PlanStep(Record(), step); }
Windows WindowsOf(int64_t step) { return WindowsAt(Record().window, Record().run, step); }
int64_t LongBlocks(int64_t step) { return WindowsOf(step).long_tokens / 128; }

// The table prints eight digits: half a unit of the last one.
void ExpectEightDigits(double value, double printed, int64_t step) {
  EXPECT_NEAR(value, printed, printed * 5.1e-8) << step;
}

TEST(Record7Schedules, T2_33_T2_34_T2_35_TheWholeTable) {
  const struct {
    int64_t step;
    double multiplier, muon, head, embed, scalars, momentum;
    int64_t blocks;
  } rows[] = {
      {0, 1, 0.025, 0.003125, 0.3, 0.015, 0.85, 1},
      {100, 1, 0.025, 0.003125, 0.3, 0.015, 0.8833333, 1},
      {150, 1, 0.025, 0.003125, 0.3, 0.015, 0.90, 1},
      {300, 1, 0.025, 0.003125, 0.3, 0.015, 0.95, 1},
      {478, 1, 0.025, 0.003125, 0.3, 0.015, 0.95, 2},
      {2580, 1, 0.025, 0.003125, 0.3, 0.015, 0.95, 6},
      {2581, 0.99974160, 0.024993540, 0.0031241925, 0.29992248, 0.014996124, 0.95, 6},
      {3000, 0.89147287, 0.022286822, 0.0027858527, 0.26744186, 0.013372093, 0.95, 7},
      {4300, 0.55555556, 0.013888889, 0.0017361111, 0.16666667, 0.0083333333, 0.95, 9},
      {4515, 0.5, 0.0125, 0.0015625, 0.15, 0.0075, 0.95, 10},
      {5000, 0.37467700, 0.0093669251, 0.0011708656, 0.11240310, 0.0056201550, 0.95, 11},
      {6000, 0.11627907, 0.0029069767, 0.00036337209, 0.034883721, 0.0017441860, 0.95, 13},
      {6400, 0.012919897, 0.00032299742, 4.0374677e-05, 0.0038759690, 0.00019379845, 0.95, 14},
      {6449, 0.00025839793, 6.4599483e-06, 8.0749354e-07, 7.7519380e-05, 3.8759690e-06, 0.95, 14},
  };
  ASSERT_TRUE(Validate(Record()).ok()) << Validate(Record());
  for (const auto& row : rows) {
    const StepPlan plan = PlanAt(row.step);
    ExpectEightDigits(plan.lr_multiplier, row.multiplier, row.step);
    ExpectEightDigits(0.025 * plan.lr_multiplier, row.muon, row.step);
    ExpectEightDigits(plan.lr_multiplier / 320, row.head, row.step);
    ExpectEightDigits(0.3 * plan.lr_multiplier, row.embed, row.step);
    ExpectEightDigits(0.015 * plan.lr_multiplier, row.scalars, row.step);
    EXPECT_NEAR(plan.momentum, row.momentum, 5.1e-8) << row.step;
    EXPECT_EQ(plan.windows.long_tokens, 128 * row.blocks) << row.step;
    EXPECT_EQ(plan.windows.short_tokens, 128 * (row.blocks / 2)) << row.step;
    EXPECT_EQ(plan.batch_tokens, 524'288) << row.step;
    EXPECT_TRUE(plan.trains) << row.step;
  }
}

TEST(Record7Schedules, T2_33_LearningRate) {
  for (int64_t step = 0; step <= 2580; ++step) ASSERT_EQ(PlanAt(step).lr_multiplier, 1) << step;
  ExpectEightDigits(PlanAt(2581).lr_multiplier, 0.99974160, 2581);
  EXPECT_NEAR(PlanAt(4515).lr_multiplier, 0.5, 1e-15);
  ExpectEightDigits(PlanAt(6449).lr_multiplier, 0.00025839793, 6449);
  double sum = 0, attention = 1, mlp = 1;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double multiplier = PlanAt(step).lr_multiplier;
    if (step > 2580) {
      ASSERT_NEAR(multiplier, (kSteps - step) / (0.6 * kSteps), 1e-15) << step;
    }
    sum += multiplier;
    attention *= 1 - 0.00025 * multiplier;
    mlp *= 1 - 0.0005 * multiplier;
  }
  EXPECT_NEAR(sum, 4515.5, 1e-9);
  // What is left of a weight that only decays.
  EXPECT_NEAR(attention, 0.32336, 5.1e-6);
  EXPECT_NEAR(mlp, 0.10453, 5.1e-6);
  EXPECT_EQ(PlanAt(kSteps).lr_multiplier, 0);
}

TEST(Record7Schedules, T2_34_Momentum) {
  EXPECT_EQ(PlanAt(0).momentum, 0.85);
  EXPECT_NEAR(PlanAt(150).momentum, 0.90, 1e-15);
  EXPECT_NEAR(PlanAt(299).momentum, 0.9496667, 5.1e-8);
  for (int64_t step = 300; step <= kSteps; ++step) ASSERT_EQ(PlanAt(step).momentum, 0.95) << step;
}

const std::vector<int64_t>& SwitchSteps() {
  static const auto* const steps = new std::vector<int64_t>{
      478, 956, 1434, 1912, 2389, 2867, 3345, 3823, 4301, 4778, 5256, 5734, 6212};
  return *steps;
}

TEST(Record7Schedules, T2_35_Window) {
  EXPECT_EQ(WindowChanges(Record().window, Record().run), SwitchSteps());
  EXPECT_EQ(LongBlocks(477), 1);
  EXPECT_EQ(LongBlocks(478), 2);
  EXPECT_EQ(LongBlocks(4300), 9);
  EXPECT_EQ(LongBlocks(4301), 10);
  EXPECT_EQ(LongBlocks(6449), 14);
  EXPECT_EQ(WindowsOf(6450).long_tokens, 1792);
  EXPECT_EQ(WindowsOf(9999), WindowsOf(6450));
  // The definition, in integers: the least W >= 1 with 128 W >= 1728 s / 6450.
  for (int64_t step = 0; step <= kSteps; ++step) {
    int64_t blocks = 1;
    while (128 * blocks * kSteps < 1728 * step) ++blocks;
    ASSERT_EQ(WindowsOf(step).long_tokens, 128 * blocks) << step;
    ASSERT_EQ(WindowsOf(step).short_tokens, 128 * (blocks / 2)) << step;
  }
}

// Where the training steps of each window begin, and its short window, as the table has them.
TEST(Record7Schedules, T2_35_ShortWindow) {
  const int64_t short_blocks[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7};
  int64_t first = 0;
  for (int64_t blocks = 1; blocks <= 14; ++blocks) {
    const int64_t end = blocks < 14 ? SwitchSteps()[blocks - 1] : kSteps + 1;
    for (const int64_t step : {first, end - 1}) {
      EXPECT_EQ(LongBlocks(step), blocks) << step;
      EXPECT_EQ(WindowsOf(step).short_tokens, 128 * short_blocks[blocks - 1]) << step;
    }
    first = end;
  }
}

// Nothing is stretched as the window grows.
TEST(Record7Schedules, RotaryTableStays) {
  const Schedules schedules = Record();
  const Rotary initial = InitialRotary(schedules.rotary);
  EXPECT_EQ(initial.attn_scale, 0.12);
  for (const int64_t step : {0, 477, 478, 4301, 6449, 6450}) {
    EXPECT_EQ(RotaryAt(schedules.rotary, schedules.window, schedules.run, step), initial) << step;
    EXPECT_EQ(YarnHistory(schedules.window, schedules.run, step), std::vector<int>{0}) << step;
  }
  for (int64_t step = 0; step <= kSteps; ++step) {
    ASSERT_EQ(PlanAt(step).rotary_changes, step == 0) << step;
  }
}

// 32 frequencies and 32 zeros. The record takes the power of fp32 exponents: up to four ulps.
TEST(Record7Schedules, RotaryFrequencies) {
  const Rotary initial = InitialRotary(Record().rotary);
  ASSERT_EQ(initial.frequencies.size(), 64u);
  const struct {
    int p;
    double f;
  } rows[] = {{0, 1},
              {1, 0.799638212},
              {8, 0.167166188},
              {16, 0.0279445313},
              {17, 0.0223455112},
              {24, 0.00467138086},
              {30, 0.00122125517},
              {31, 0.0009765625}};
  for (const auto& [p, f] : rows) EXPECT_NEAR(initial.frequencies[p], f, f * 5e-7) << p;
  for (int p = 32; p < 64; ++p) EXPECT_EQ(initial.frequencies[p], 0) << p;
}

TEST(Record7Schedules, T2_40_Validates53Times) {
  const Schedules schedules = Record();
  EXPECT_EQ(ValidationCount(schedules.validation, schedules.run), 53);
  int64_t count = 0;
  for (int64_t step = 0; step <= kSteps; ++step) {
    const bool validates = PlanAt(step).validates;
    EXPECT_EQ(validates, step % 125 == 0 || step == kSteps) << step;
    count += validates ? 1 : 0;
  }
  EXPECT_EQ(count, 53);
  EXPECT_FALSE(PlanAt(kSteps).trains);
  EXPECT_EQ(TrainingTokens(schedules.batch, schedules.run), 3'381'657'600);
}

// A shorter run has the same course; windows that no step has do not appear.
TEST(Record7Schedules, ShortRuns) {
  for (const int64_t total : {0, 1, 2, 5, 13, 14, 100, 645}) {
    const Schedules schedules = sched::Rescaled(Record(), total);
    ASSERT_EQ(schedules.run.total(), total);
    std::vector<int64_t> changes;
    for (int64_t step = 1; step <= total; ++step) {
      const Windows windows = WindowsAt(schedules.window, schedules.run, step);
      if (windows != WindowsAt(schedules.window, schedules.run, step - 1)) changes.push_back(step);
    }
    EXPECT_EQ(WindowChanges(schedules.window, schedules.run), changes) << total;
    EXPECT_EQ(PlanStep(schedules, total).windows.long_tokens, 1792) << total;
    EXPECT_EQ(PlanStep(schedules, 0).windows.long_tokens, total == 0 ? 1792 : 128) << total;
    EXPECT_EQ(YarnHistory(schedules.window, schedules.run, total), std::vector<int>{0}) << total;
  }
}

}  // namespace
}  // namespace tools
