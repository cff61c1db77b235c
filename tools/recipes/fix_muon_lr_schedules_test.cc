// The schedules of the record of 2025-10-27 (FixMuonLR) against its tables, and what its fix
// changed.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using sched::PlanStep;
using sched::RotaryAt;
using sched::Schedules;
using sched::StepPlan;
using sched::TrainingTokens;
using sched::UseLegacyExtension;
using sched::Validate;
using sched::ValidationCount;
using sched::WindowChanges;
using sched::Windows;
using sched::YarnHistory;

Schedules Record() { return FindRecipe("fix_muon_lr", "full", 50304)->schedules; }

// The schedules as they would have been with the rule before the fix.
Schedules Unfixed() {
  Schedules schedules = Record();
  UseLegacyExtension(&schedules);
  return schedules;
}

double Multiplier(const Schedules& schedules, int64_t step) {
  return PlanStep(schedules, step).lr_multiplier;
}

// Half a unit of the last printed digit.
constexpr double kEightDecimals = 5.1e-9;
constexpr double kSixDecimals = 5.1e-7;

struct Row {
  int64_t step;
  double multiplier, matrices, c_fc, embed;
  int short_blocks, long_blocks;
  double momentum;
};

TEST(FixMuonLRSchedules, TheWholeTable) {
  const Row rows[] = {
      {0, 1, 0.03, 0.06, 0.6, 1, 3, 0.85},
      {1, 1, 0.03, 0.06, 0.6, 1, 3, 0.850333},
      {150, 1, 0.03, 0.06, 0.6, 1, 3, 0.90},
      {299, 1, 0.03, 0.06, 0.6, 1, 3, 0.949667},
      {748, 1, 0.03, 0.06, 0.6, 1, 3, 0.95},
      {749, 1, 0.03, 0.06, 0.6, 3, 7, 0.95},
      {1122, 1, 0.03, 0.06, 0.6, 3, 7, 0.95},
      {1123, 0.99959911, 0.029987973, 0.059975947, 0.5997595, 3, 7, 0.95},
      {1496, 0.70053452, 0.021016036, 0.042032071, 0.4203207, 3, 7, 0.95},
      {1497, 0.69973274, 0.020991982, 0.041983964, 0.4198396, 5, 11, 0.95},
      {1800, 0.45679287, 0.013703786, 0.027407572, 0.2740757, 5, 11, 0.95},
      {2000, 0.29643653, 0.008893096, 0.017786192, 0.1778619, 5, 11, 0.95},
      {2200, 0.13608018, 0.004082405, 0.008164811, 0.0816481, 5, 11, 0.95},
      {2235, 0.10801782, 0.003240535, 0.006481069, 0.0648107, 5, 11, 0.95},
      {2236, 0.10721604, 0.003216481, 0.006432962, 0.0643296, 5, 11, 0.948},
      {2244, 0.10080178, 0.003024053, 0.006048107, 0.0604811, 5, 11, 0.932},
      {2245, 0.10018, 0.0030054, 0.0060108, 0.060108, 6, 13, 0.930},
      {2260, 0.10018, 0.0030054, 0.0060108, 0.060108, 6, 13, 0.900},
      {2284, 0.10018, 0.0030054, 0.0060108, 0.060108, 6, 13, 0.852},
  };
  for (const Row& row : rows) {
    const StepPlan plan = PlanStep(Record(), row.step);
    EXPECT_NEAR(plan.lr_multiplier, row.multiplier, kEightDecimals) << row.step;
    EXPECT_NEAR(plan.lr_multiplier * 0.03, row.matrices, 5.1e-10) << row.step;
    EXPECT_NEAR(plan.lr_multiplier * 0.06, row.c_fc, 5.1e-10) << row.step;
    EXPECT_NEAR(plan.lr_multiplier * 0.6, row.embed, 5.1e-8) << row.step;
    EXPECT_EQ(plan.windows.short_tokens, 128 * row.short_blocks) << row.step;
    EXPECT_EQ(plan.windows.long_tokens, 128 * row.long_blocks) << row.step;
    EXPECT_NEAR(plan.momentum, row.momentum, kSixDecimals) << row.step;
    EXPECT_TRUE(plan.trains) << row.step;
  }
}

TEST(FixMuonLRSchedules, T1_41_LearningRate) {
  EXPECT_EQ(Multiplier(Record(), 1122), 1);
  EXPECT_NEAR(Multiplier(Record(), 1123), 0.99959911, kEightDecimals);
  EXPECT_NEAR(Multiplier(Record(), 2000), 0.29643653, kEightDecimals);
  EXPECT_NEAR(Multiplier(Record(), 2244), 0.10080178, kEightDecimals);
  for (int64_t step = 2245; step <= 2285; ++step) {  // flat, to the bit
    EXPECT_EQ(Multiplier(Record(), step), Multiplier(Record(), 2245)) << step;
  }
  EXPECT_NEAR(Multiplier(Record(), 2284), 0.10018, 1e-12);
}

TEST(FixMuonLRSchedules, T1_42_LearningRateBeforeTheFix) {
  EXPECT_EQ(Multiplier(Unfixed(), 1142), 1);
  EXPECT_NEAR(Multiplier(Unfixed(), 1143), 0.999606, kSixDecimals);
  EXPECT_NEAR(Multiplier(Unfixed(), 2245), 0.131510, kSixDecimals);
  EXPECT_NEAR(Multiplier(Unfixed(), 2284), 0.100788, kSixDecimals);
}

// Rates of the run before the fix as it was (2,275 scheduled steps, cooldown over 45 %), of the
// same run with the fix, and of both with the record's numbers.
TEST(FixMuonLRSchedules, TheFixAsATable) {
  Schedules as_run = Unfixed();
  as_run.run.scheduled_steps = 2275;
  as_run.learning_rate.cooldown_fraction = 0.45;
  Schedules if_fixed = as_run;
  if_fixed.learning_rate.cools_in_extension = false;
  const struct {
    int64_t step;
    double unfixed, fixed, as_run, if_fixed;
  } rows[] = {
      {0, 1, 1, 1, 1},
      {1122, 1, 1, 1, 1},
      {1123, 1, 0.999599, 1, 1},
      {1143, 0.999606, 0.983563, 1, 1},
      {1250, 0.915317, 0.897773, 1, 1},
      {1273, 0.897199, 0.879332, 1, 0.980879},
      {1500, 0.718381, 0.697327, 0.804104, 0.781319},
      {1750, 0.521444, 0.496882, 0.588121, 0.561538},
      {2000, 0.324508, 0.296437, 0.372138, 0.341758},
      {2200, 0.166958, 0.136080, 0.199352, 0.165934},
      {2244, 0.132298, 0.100802, 0.161339, 0.127253},
      {2245, 0.131510, 0.100180, 0.160475, 0.126374},
      {2260, 0.119694, 0.100180, 0.147516, 0.113187},
      {2284, 0.100788, 0.100180, 0.126782, 0.100200},
  };
  for (const auto& row : rows) {
    EXPECT_NEAR(Multiplier(Unfixed(), row.step), row.unfixed, kSixDecimals) << row.step;
    EXPECT_NEAR(Multiplier(Record(), row.step), row.fixed, kSixDecimals) << row.step;
    EXPECT_NEAR(Multiplier(as_run, row.step), row.as_run, kSixDecimals) << row.step;
    EXPECT_NEAR(Multiplier(if_fixed, row.step), row.if_fixed, kSixDecimals) << row.step;
  }
  EXPECT_NEAR(Multiplier(as_run, 2314), 0.100864, kSixDecimals);
  EXPECT_NEAR(Multiplier(if_fixed, 2314), 0.100200, kSixDecimals);
  // The first reduced steps.
  EXPECT_EQ(Multiplier(as_run, 1273), 1);
  EXPECT_LT(Multiplier(as_run, 1274), 1);
  EXPECT_EQ(Multiplier(if_fixed, 1251), 1);
  EXPECT_LT(Multiplier(if_fixed, 1252), 1);
}

TEST(FixMuonLRSchedules, T1_43_WindowChanges) {
  using Steps = std::vector<int64_t>;
  const Schedules fixed = Record(), unfixed = Unfixed();
  EXPECT_EQ(WindowChanges(fixed.window, fixed.run), (Steps{749, 1497, 2245, 2285}));
  EXPECT_EQ(WindowChanges(unfixed.window, unfixed.run), (Steps{749, 1498, 2285}));
  EXPECT_EQ(YarnHistory(fixed.window, fixed.run, 2244), (std::vector<int>{3, 7, 11}));
  EXPECT_EQ(YarnHistory(fixed.window, fixed.run, 2245), (std::vector<int>{3, 7, 11, 13}));
  EXPECT_EQ(YarnHistory(fixed.window, fixed.run, 2285), (std::vector<int>{3, 7, 11, 13}));
  EXPECT_EQ(YarnHistory(unfixed.window, unfixed.run, 2284), (std::vector<int>{3, 7, 11}));
  // Before the fix the extension trained with the last scheduled windows.
  EXPECT_EQ(PlanStep(unfixed, 2260).windows,
            (Windows{.short_tokens = 640, .long_tokens = 1408, .yarn_blocks = 11}));
  EXPECT_EQ(PlanStep(fixed, 2260).windows,
            (Windows{.short_tokens = 768, .long_tokens = 1664, .yarn_blocks = 13}));
}

TEST(FixMuonLRSchedules, T1_44_LastValidation) {
  const Windows last = {.short_tokens = 768, .long_tokens = 2560, .yarn_blocks = 13};
  EXPECT_EQ(PlanStep(Record(), 2285).windows, last);
  EXPECT_EQ(PlanStep(Unfixed(), 2285).windows, last);
  EXPECT_FALSE(PlanStep(Record(), 2285).rotary_changes);
  EXPECT_TRUE(PlanStep(Unfixed(), 2285).rotary_changes);
}

TEST(FixMuonLRSchedules, TheRotaryTableChangesWithTheWindow) {
  std::vector<int64_t> changes;
  for (int64_t step = 0; step <= 2285; ++step) {
    if (PlanStep(Record(), step).rotary_changes) changes.push_back(step);
  }
  EXPECT_EQ(changes, (std::vector<int64_t>{0, 749, 1497, 2245}));
  const Schedules record = Record();
  EXPECT_NEAR(RotaryAt(record.rotary, record.window, record.run, 2245).attn_scale, 0.1317779884,
              5.1e-11);
}

TEST(FixMuonLRSchedules, T1_45_Momentum) {
  const auto momentum = [](int64_t step) { return PlanStep(Record(), step).momentum; };
  EXPECT_EQ(momentum(0), 0.85);
  EXPECT_NEAR(momentum(150), 0.90, 1e-15);
  EXPECT_NEAR(momentum(299), 0.949667, kSixDecimals);
  for (int64_t step = 300; step <= 2235; ++step) ASSERT_EQ(momentum(step), 0.95) << step;
  EXPECT_NEAR(momentum(2236), 0.948, 1e-15);
  EXPECT_NEAR(momentum(2260), 0.90, 1e-15);
  EXPECT_NEAR(momentum(2284), 0.852, 1e-15);
  EXPECT_EQ(momentum(2285), 0.85);
  EXPECT_EQ(momentum(5000), 0.85);
}

TEST(FixMuonLRSchedules, T1_54_TokensAndValidations) {
  const Schedules record = Record();
  EXPECT_EQ(TrainingTokens(record.batch, record.run), 598'999'040);
  EXPECT_EQ(ValidationCount(record.validation, record.run), 11);
}

TEST(FixMuonLRSchedules, RescalesTheWholeCourse) {
  const Schedules fifth = sched::Rescaled(Record(), 457);
  EXPECT_EQ(fifth.run.scheduled_steps, 449);
  EXPECT_EQ(fifth.run.extension_steps, 8);
  EXPECT_EQ(fifth.momentum.warmup_steps, 60);
  EXPECT_EQ(fifth.momentum.cooldown_steps, 10);
  EXPECT_EQ(WindowChanges(fifth.window, fifth.run), (std::vector<int64_t>{150, 300, 449, 457}));
  EXPECT_NEAR(PlanStep(fifth, 456).momentum, 0.86, 1e-15);
  const Schedules same = sched::Rescaled(Record(), 2285);
  EXPECT_EQ(same.momentum.cooldown_steps, 50);
  EXPECT_EQ(same.run.scheduled_steps, 2245);
}

TEST(FixMuonLRSchedules, S1_EveryShortRunIsFinite) {
  for (int64_t total = 0; total <= 20; ++total) {
    for (const bool legacy : {false, true}) {
      const Schedules schedules = sched::Rescaled(legacy ? Unfixed() : Record(), total);
      ASSERT_TRUE(Validate(schedules).ok()) << total;
      for (int64_t step = 0; step <= total + 2; ++step) {
        const StepPlan plan = PlanStep(schedules, step);
        EXPECT_GE(plan.lr_multiplier, 0.1) << total << " " << step;
        EXPECT_LE(plan.lr_multiplier, 1) << total << " " << step;
        EXPECT_GE(plan.momentum, 0.85) << total << " " << step;
        EXPECT_LE(plan.momentum, 0.95) << total << " " << step;
        EXPECT_GE(plan.windows.long_tokens, 384) << total << " " << step;
      }
      EXPECT_EQ(PlanStep(schedules, total).windows.long_tokens, 2560);
    }
  }
}

}  // namespace
}  // namespace tools
