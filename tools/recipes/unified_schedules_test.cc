// The schedules of the record of 2026-01-18 (unified optimizers) against its tables.
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using sched::BatchStart;
using sched::BatchStarts;
using sched::LastTiedStep;
using sched::LossWeightsAt;
using sched::MaxWeights;
using sched::PlanStep;
using sched::Rotary;
using sched::RotaryAt;
using sched::Schedules;
using sched::StepPlan;
using sched::TrainingTokens;
using sched::Validate;
using sched::WindowChanges;
using sched::Windows;

Schedules Record() { return FindRecipe("unified_optimizers", "full", 50304)->schedules; }

StepPlan PlanAt(int64_t step) { return PlanStep(Record(), step); }

// Whether Adam is due, as the optimizer decides it.
bool AdamStep(int64_t step) { return (step + 1) % Record().tying.update_every == 0; }

// Half a unit of the last printed digit.
constexpr double kSixDecimals = 5.1e-7;

struct Row {
  int64_t step;
  int64_t batch;
  int short_blocks, long_blocks;
  double multiplier, momentum;
  std::vector<double> weights;
  bool adam, tied;
};

TEST(UnifiedSchedules, UO_24_UO_25_UO_26_UO_28_TheWholeTable) {
  const Row rows[] = {
      {0, 131072, 1, 3, 1, 0.85, {1, 0.5, 0.25}, false, true},
      {1, 131072, 1, 3, 1, 0.850333, {1, 0.5, 0.249565}, true, true},
      {150, 131072, 1, 3, 1, 0.90, {1, 0.5, 0.184783}, false, true},
      {300, 131072, 1, 3, 1, 0.95, {1, 0.5, 0.119565}, false, true},
      {574, 131072, 1, 3, 1, 0.95, {1, 0.5, 0.000435}, false, true},
      {575, 262144, 3, 7, 1, 0.95, {1, 0.5}, true, true},
      {576, 262144, 3, 7, 1.52, 0.95, {1, 0.499130}, false, true},
      {862, 262144, 3, 7, 1.52, 0.95, {1, 0.250435}, false, true},
      {863, 262144, 3, 7, 1.519177, 0.95, {1, 0.249565}, true, true},
      {1000, 262144, 3, 7, 1.293623, 0.95, {1, 0.130435}, false, true},
      {1149, 262144, 3, 7, 1.048313, 0.95, {1, 0.000870}, true, true},
      {1150, 393216, 5, 11, 1.046667, 0.95, {1}, false, true},
      {1151, 393216, 5, 11, 1.184777, 0.95, {1}, true, true},
      {1152, 393216, 5, 11, 1.182887, 0.95, {1}, false, false},
      {1250, 393216, 5, 11, 0.997681, 0.95, {1}, false, false},
      {1500, 393216, 5, 11, 0.525217, 0.95, {1}, false, false},
      {1715, 393216, 5, 11, 0.118899, 0.95, {1}, true, false},
      {1716, 393216, 5, 11, 0.117009, 0.948, {1}, false, false},
      {1724, 393216, 5, 11, 0.101890, 0.932, {1}, false, false},
      {1725, 393216, 6, 13, 0.1, 0.930, {1}, true, false},
      {1764, 393216, 6, 13, 0.1, 0.852, {1}, false, false},
  };
  ASSERT_TRUE(Validate(Record()).ok()) << Validate(Record());
  for (const Row& row : rows) {
    const StepPlan plan = PlanAt(row.step);
    EXPECT_EQ(plan.batch_tokens, row.batch) << row.step;
    EXPECT_EQ(plan.windows.short_tokens, 128 * row.short_blocks) << row.step;
    EXPECT_EQ(plan.windows.long_tokens, 128 * row.long_blocks) << row.step;
    EXPECT_NEAR(plan.lr_multiplier, row.multiplier, kSixDecimals) << row.step;
    EXPECT_NEAR(plan.momentum, row.momentum, kSixDecimals) << row.step;
    ASSERT_EQ(plan.loss_weights.size(), 3u) << row.step;
    EXPECT_EQ(plan.loss_weight_count, std::ssize(row.weights)) << row.step;
    for (size_t k = 0; k < 3; ++k) {
      const double weight = k < row.weights.size() ? row.weights[k] : 0;
      EXPECT_NEAR(plan.loss_weights[k], weight, kSixDecimals) << row.step << " " << k;
    }
    EXPECT_EQ(AdamStep(row.step), row.adam) << row.step;
    EXPECT_EQ(plan.tied, row.tied) << row.step;
    EXPECT_TRUE(plan.trains) << row.step;
  }
}

TEST(UnifiedSchedules, UO_24_LearningRate) {
  for (int64_t step = 0; step <= 575; ++step) ASSERT_EQ(PlanAt(step).lr_multiplier, 1) << step;
  for (int64_t step = 576; step <= 862; ++step) ASSERT_EQ(PlanAt(step).lr_multiplier, 1.52) << step;
  // The closed form of the line, 0.1 + 2 (base - 0.1) (1 - x), to a few units in the last place.
  for (int64_t step = 863; step <= 1725; ++step) {
    const double base = step <= 1150 ? 1.52 : 1.73;
    ASSERT_NEAR(PlanAt(step).lr_multiplier, 0.1 + 2 * (base - 0.1) * (1 - step / 1725.0), 1e-14)
        << step;
  }
  for (int64_t step = 1725; step <= 1800; ++step) {
    ASSERT_EQ(PlanAt(step).lr_multiplier, 0.1) << step;
  }
}

TEST(UnifiedSchedules, UO_25_Momentum) {
  EXPECT_EQ(PlanAt(0).momentum, 0.85);
  EXPECT_NEAR(PlanAt(150).momentum, 0.90, 1e-15);
  for (int64_t step = 300; step <= 1715; ++step) ASSERT_EQ(PlanAt(step).momentum, 0.95) << step;
  EXPECT_NEAR(PlanAt(1716).momentum, 0.948, 1e-15);
  EXPECT_NEAR(PlanAt(1725).momentum, 0.93, 1e-15);
  EXPECT_NEAR(PlanAt(1764).momentum, 0.852, 1e-15);
}

TEST(UnifiedSchedules, UO_26_LossWeights) {
  const Schedules record = Record();
  EXPECT_EQ(MaxWeights(record.multi_token), 3);
  for (int64_t step = 0; step <= 1765; ++step) {
    const double x = static_cast<double>(step) / 1725;
    const std::vector<double> weights = step < 575 ? std::vector<double>{1, 0.5, 0.25 * (1 - 3 * x)}
                                        : step < 1150 ? std::vector<double>{1, 0.5 * (2 - 3 * x)}
                                                      : std::vector<double>{1};
    ASSERT_EQ(LossWeightsAt(record.multi_token, record.run, step), weights) << step;
  }
  EXPECT_EQ(PlanAt(1149).loss_weight_count, 2);
  EXPECT_NEAR(PlanAt(1149).loss_weights[1], 0.000870, kSixDecimals);
  EXPECT_EQ(PlanAt(1150).loss_weight_count, 1);
  EXPECT_EQ(PlanAt(1150).loss_weights, (std::vector<float>{1, 0, 0}));
}

TEST(UnifiedSchedules, WindowsChangeWithTheBatch) {
  const Schedules record = Record();
  EXPECT_EQ(WindowChanges(record.window, record.run),
            (std::vector<int64_t>{575, 1150, 1725, 1765}));
  EXPECT_EQ(BatchStarts(record.batch, record.run),
            (std::vector<BatchStart>{{0, 131072}, {575, 262144}, {1150, 393216}}));
  EXPECT_EQ(PlanAt(1765).windows,
            (Windows{.short_tokens = 768, .long_tokens = 2560, .yarn_blocks = 13}));
}

TEST(UnifiedSchedules, UO_16_AttentionScale) {
  const Schedules record = Record();
  std::vector<int64_t> changes;
  for (int64_t step = 0; step <= 1765; ++step) {
    if (PlanAt(step).rotary_changes) changes.push_back(step);
  }
  EXPECT_EQ(changes, (std::vector<int64_t>{0, 575, 1150, 1725}));
  const struct {
    int64_t from, to;
    double attn_scale;
  } rows[] = {{0, 574, 0.1},
              {575, 1149, 0.116945957},
              {1150, 1724, 0.127517524},
              {1725, 1765, 0.131777988}};
  for (const auto& row : rows) {
    for (const int64_t step : {row.from, row.to}) {
      EXPECT_NEAR(RotaryAt(record.rotary, record.window, record.run, step).attn_scale,
                  row.attn_scale, 5.1e-10)
          << step;
    }
  }
}

TEST(UnifiedSchedules, UO_17_Frequencies) {
  const Schedules record = Record();
  // To the fp32 of the recurrence, which rounds a few times.
  constexpr double kRelative = 1e-6;
  const int columns[] = {0, 4, 8, 16, 24, 31};
  const struct {
    int64_t step;
    double frequencies[6];
    int kept;  // from the state before
  } rows[] = {
      {0, {1, 0.408859600, 0.167166173, 0.0279445292, 0.00467137998, 0.000976562500}, 32},
      {575, {1, 0.356010507, 0.100042233, 0.0123408418, 0.00200201999, 0.000418526786}, 3},
      {1150, {1, 0.356010507, 0.0792314602, 0.00796325768, 0.00127401272, 0.000266335227}, 6},
      {1725, {1, 0.356010507, 0.0736302051, 0.00676914398, 0.00107801076, 0.000225360577}, 7},
  };
  for (const auto& row : rows) {
    const Rotary now = RotaryAt(record.rotary, record.window, record.run, row.step);
    for (int k = 0; k < 6; ++k) {
      EXPECT_NEAR(now.frequencies[columns[k]], row.frequencies[k], kRelative * row.frequencies[k])
          << row.step << " " << columns[k];
    }
    const Rotary before =
        RotaryAt(record.rotary, record.window, record.run, row.step == 0 ? 0 : row.step - 1);
    int kept = 0;
    for (int k = 0; k < 32; ++k) {
      const double old = before.frequencies[k];
      if (std::abs(now.frequencies[k] - old) <= kRelative * old) ++kept;
    }
    EXPECT_EQ(kept, row.kept) << row.step;
  }
}

TEST(UnifiedSchedules, UO_27_AdamSteps) {
  int64_t trained = 0;
  int64_t adam = 0;
  int64_t last_adam = -1;
  for (int64_t step = 0; step <= 1800; ++step) {
    if (!PlanAt(step).trains) continue;
    ++trained;
    if (!AdamStep(step)) continue;
    ++adam;
    last_adam = step;
  }
  EXPECT_EQ(trained, 1765);
  EXPECT_EQ(adam, 882);
  EXPECT_EQ(last_adam, 1763);  // the gradient of step 1764 goes nowhere
}

TEST(UnifiedSchedules, UO_28_Untying) {
  EXPECT_EQ(LastTiedStep(Record().tying, Record().run), 1151);
  int64_t head_updates = 0;
  int64_t step = 0;
  for (; PlanAt(step).tied; ++step) head_updates += AdamStep(step);
  EXPECT_EQ(step, 1152);
  EXPECT_EQ(head_updates, 576);
  while (!AdamStep(step)) ++step;
  EXPECT_EQ(step, 1153);
  for (; step <= 1765; ++step) ASSERT_FALSE(PlanAt(step).tied) << step;
}

TEST(UnifiedSchedules, UO_43_TokensAndValidations) {
  const Schedules record = Record();
  EXPECT_EQ(TrainingTokens(record.batch, record.run), 467'927'040);
  int64_t tokens = 0;
  std::vector<int64_t> validations;
  for (int64_t step = 0; step <= 1765; ++step) {
    const StepPlan plan = PlanAt(step);
    if (plan.trains) tokens += plan.batch_tokens;
    if (plan.validates) validations.push_back(step);
  }
  EXPECT_EQ(tokens, 467'927'040);
  EXPECT_EQ(validations, (std::vector<int64_t>{0, 250, 500, 750, 1000, 1250, 1500, 1750, 1765}));
}

TEST(UnifiedSchedules, RescalesTheWholeCourse) {
  const Schedules fifth = sched::Rescaled(Record(), 353);
  EXPECT_EQ(fifth.run.scheduled_steps, 345);
  EXPECT_EQ(fifth.run.extension_steps, 8);
  EXPECT_EQ(fifth.momentum.warmup_steps, 60);
  EXPECT_EQ(fifth.momentum.cooldown_steps, 10);
  EXPECT_EQ(WindowChanges(fifth.window, fifth.run), (std::vector<int64_t>{115, 230, 345, 353}));
  EXPECT_EQ(BatchStarts(fifth.batch, fifth.run),
            (std::vector<BatchStart>{{0, 131072}, {115, 262144}, {230, 393216}}));
  EXPECT_EQ(PlanStep(fifth, 115).lr_multiplier, 1);
  EXPECT_EQ(PlanStep(fifth, 116).lr_multiplier, 1.52);
  EXPECT_EQ(PlanStep(fifth, 345).lr_multiplier, 0.1);
  EXPECT_EQ(PlanStep(fifth, 114).loss_weight_count, 3);
  EXPECT_EQ(PlanStep(fifth, 229).loss_weight_count, 2);
  EXPECT_EQ(PlanStep(fifth, 230).loss_weight_count, 1);
  EXPECT_TRUE(PlanStep(fifth, 231).tied);  // 230, made odd
  EXPECT_FALSE(PlanStep(fifth, 232).tied);
  const Schedules same = sched::Rescaled(Record(), 1765);
  EXPECT_EQ(same.run.scheduled_steps, 1725);
  EXPECT_EQ(same.momentum.cooldown_steps, 50);
}

TEST(UnifiedSchedules, S1_EveryShortRunIsFinite) {
  for (int64_t total = 0; total <= 20; ++total) {
    const Schedules schedules = sched::Rescaled(Record(), total);
    ASSERT_TRUE(Validate(schedules).ok()) << total;
    float third = 1;
    for (int64_t step = 0; step <= total + 2; ++step) {
      const StepPlan plan = PlanStep(schedules, step);
      EXPECT_GE(plan.lr_multiplier, 0.1) << total << " " << step;
      EXPECT_LE(plan.lr_multiplier, 1.73) << total << " " << step;
      ASSERT_EQ(plan.loss_weights.size(), 3u);
      EXPECT_EQ(plan.loss_weights[0], 1) << total << " " << step;
      EXPECT_GE(plan.loss_weights[2], 0) << total << " " << step;
      EXPECT_LE(plan.loss_weights[2], third) << total << " " << step;
      third = plan.loss_weights[2];
    }
    EXPECT_EQ(PlanStep(schedules, total).lr_multiplier, 0.1) << total;
    EXPECT_EQ(PlanStep(schedules, total).loss_weight_count, 1) << total;
  }
}

// What the earlier records do not use.
TEST(UnifiedSchedules, AnEarlierRecordHasTheNextTokenUntied) {
  const Schedules a = FindRecipe("muon_custom_sizing", "full", 50304)->schedules;
  for (const int64_t step : {0, 1, 820, 1640, 1680}) {
    const StepPlan plan = PlanStep(a, step);
    EXPECT_EQ(plan.loss_weights, std::vector<float>{1}) << step;
    EXPECT_EQ(plan.loss_weight_count, 1) << step;
    EXPECT_FALSE(plan.tied) << step;
  }
}

TEST(UnifiedSchedules, ReportsItsBadParts) {
  Schedules schedules = Record();
  schedules.tying.fraction = 2;
  EXPECT_EQ(Validate(schedules).message(), "tying schedule: fraction 2 is outside [0, 1]");
  schedules.multi_token.parts = 0;
  EXPECT_EQ(Validate(schedules).message(), "multi-token schedule: 0 parts; the least is 1");
  schedules.learning_rate.stage_factors[1] = 0;
  EXPECT_EQ(Validate(schedules).message(),
            "learning rate schedule: stage factor 1 is 0; it must be positive");
}

// However a run is rescaled, a larger batch comes with the larger windows.
TEST(UnifiedSchedules, BatchAndWindowsChangeTogether) {
  for (int64_t steps = 1; steps <= 2000; ++steps) {
    const Schedules schedules = sched::Rescaled(Record(), steps);
    std::vector<int64_t> batches;
    for (const BatchStart& start : BatchStarts(schedules.batch, schedules.run)) {
      if (start.first_step > 0) batches.push_back(start.first_step);
    }
    std::vector<int64_t> windows;
    for (int64_t change : WindowChanges(schedules.window, schedules.run)) {
      if (change < schedules.run.scheduled_steps) windows.push_back(change);
    }
    ASSERT_EQ(batches, windows) << steps << " steps";
  }
}

}  // namespace
}  // namespace tools
