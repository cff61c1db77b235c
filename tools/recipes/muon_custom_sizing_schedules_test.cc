// The schedules of the record of 2025-09-23 against its tables.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using sched::BatchTokensAt;
using sched::InitialRotary;
using sched::LearningRateMultiplier;
using sched::MomentumAt;
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

const Schedules& Record() {
  static const auto* const schedules =
      new Schedules(FindRecipe("muon_custom_sizing", "full", 50304)->schedules);
  return *schedules;
}

double Multiplier(int64_t step) {
  return LearningRateMultiplier(Record().learning_rate, Record().run, step);
}

Windows WindowsOf(int64_t step) { return WindowsAt(Record().window, Record().run, step); }

Windows Blocks(int short_blocks, int long_blocks) {
  return {.short_tokens = short_blocks * 128,
          .long_tokens = long_blocks * 128,
          .yarn_blocks = long_blocks};
}

Rotary RotaryOf(int64_t step) {
  return RotaryAt(Record().rotary, Record().window, Record().run, step);
}

// The reference prints 8 decimals; half a unit of the last one.
constexpr double kEightDecimals = 5.1e-9;

TEST(LearningRate, T1_40_LearningRate) {
  EXPECT_EQ(Multiplier(820), 1);
  EXPECT_NEAR(Multiplier(821), 0.99890244, kEightDecimals);
  EXPECT_NEAR(Multiplier(1230), 0.55, kEightDecimals);
  EXPECT_NEAR(Multiplier(1639), 0.10109756, kEightDecimals);
  EXPECT_NEAR(Multiplier(1640), 0.10018, kEightDecimals);
  EXPECT_NEAR(Multiplier(1679), 0.10018, kEightDecimals);
}

TEST(LearningRate, T1_46_EffectiveRatesAtStep0) {
  EXPECT_EQ(Multiplier(0) * 0.05, 0.05);       // matrices
  EXPECT_EQ(Multiplier(0) * 0.008, 0.008);     // head
  EXPECT_EQ(Multiplier(0) * 0.008 * 75, 0.6);  // embeddings
  EXPECT_EQ(Multiplier(0) * 0.008 * 5, 0.04);  // scalars
}

struct Row {
  int64_t step;
  double multiplier, muon, embed, scalar;
};

TEST(LearningRate, TheWholeTable) {
  const Row rows[] = {
      {0, 1, 0.05, 0.6, 0.04},
      {100, 1, 0.05, 0.6, 0.04},
      {300, 1, 0.05, 0.6, 0.04},
      {546, 1, 0.05, 0.6, 0.04},
      {547, 1, 0.05, 0.6, 0.04},
      {820, 1, 0.05, 0.6, 0.04},
      {821, 0.99890244, 0.049945122, 0.5993415, 0.0399561},
      {1000, 0.80243902, 0.040121951, 0.4814634, 0.0320976},
      {1093, 0.70036585, 0.035018293, 0.4202195, 0.0280146},
      {1094, 0.69926829, 0.034963415, 0.4195610, 0.0279707},
      {1230, 0.55, 0.0275, 0.33, 0.022},
      {1500, 0.25365854, 0.012682927, 0.1521951, 0.0101463},
      {1600, 0.14390244, 0.007195122, 0.0863415, 0.0057561},
      {1639, 0.10109756, 0.005054878, 0.0606585, 0.0040439},
      {1640, 0.10018, 0.005009, 0.060108, 0.0040072},
      {1679, 0.10018, 0.005009, 0.060108, 0.0040072},
  };
  for (const Row& row : rows) {
    const double multiplier = Multiplier(row.step);
    EXPECT_NEAR(multiplier, row.multiplier, kEightDecimals) << row.step;
    EXPECT_NEAR(multiplier * 0.05, row.muon, 5.1e-10) << row.step;   // 9 decimals
    EXPECT_NEAR(multiplier * 0.6, row.embed, 5.1e-8) << row.step;    // 7 decimals
    EXPECT_NEAR(multiplier * 0.04, row.scalar, 5.1e-8) << row.step;  // 7 decimals
  }
}

TEST(Window, T1_43_WindowChanges) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(WindowChanges(Record().window, Record().run), (Steps{547, 1094, 1680}));
  const sched::RunLength longer{.scheduled_steps = 2245, .extension_steps = 40};
  EXPECT_EQ(WindowChanges(Record().window, longer), (Steps{749, 1498, 2285}));
}

TEST(Window, T1_44_LastValidation) {
  EXPECT_EQ(WindowsOf(1680),
            (Windows{.short_tokens = 768, .long_tokens = 2560, .yarn_blocks = 13}));
}

TEST(Window, TheWholeTable) {
  for (int64_t step = 0; step < 547; ++step) ASSERT_EQ(WindowsOf(step), Blocks(1, 3)) << step;
  for (int64_t step = 547; step < 1094; ++step) ASSERT_EQ(WindowsOf(step), Blocks(3, 7)) << step;
  for (int64_t step = 1094; step < 1680; ++step) ASSERT_EQ(WindowsOf(step), Blocks(5, 11)) << step;
}

// Half a unit of the sixth printed digit is at most 5e-6 of a value; three updates of about
// six fp32 roundings each add 18 * 2^-24 = 1.1e-6.
constexpr double kSixDigits = 6.2e-6;

TEST(Rotary, T1_20_InitialFrequencies) {
  const std::vector<float> f = InitialRotary(Record().rotary).frequencies;
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_EQ(f[31], 1.0f / 1024);
  for (int j = 32; j < 64; ++j) EXPECT_EQ(f[j], 0.0f) << j;
}

// Float64 throughout; ten printed decimals.
TEST(Rotary, T1_21_AttnScale) {
  EXPECT_EQ(RotaryOf(0).attn_scale, 0.1);
  EXPECT_NEAR(RotaryOf(547).attn_scale, 0.1169459572, 5.1e-11);
  EXPECT_NEAR(RotaryOf(1094).attn_scale, 0.1275175238, 5.1e-11);
  EXPECT_NEAR(RotaryOf(1680).attn_scale, 0.1317779884, 5.1e-11);
}

TEST(Rotary, T1_22_Frequency10) {
  EXPECT_NEAR(RotaryOf(547).frequencies[10], 0.0567108, kSixDigits * 0.0567108);
  EXPECT_NEAR(RotaryOf(1094).frequencies[10], 0.0408033, kSixDigits * 0.0408033);
  EXPECT_NEAR(RotaryOf(1680).frequencies[10], 0.0361749, kSixDigits * 0.0361749);
}

// Seven printed digits: at most 2.5e-7 of values above 2e-4, and fp32 as above.
TEST(Rotary, T1_23_Frequency31) {
  EXPECT_NEAR(RotaryOf(547).frequencies[31], 4.185268e-4, 1.4e-6 * 4.185268e-4);
  EXPECT_NEAR(RotaryOf(1094).frequencies[31], 2.663352e-4, 1.4e-6 * 2.663352e-4);
  EXPECT_NEAR(RotaryOf(1680).frequencies[31], 2.253606e-4, 1.4e-6 * 2.253606e-4);
}

TEST(Rotary, TheWholeTable) {
  const int columns[] = {0, 3, 5, 8, 10, 15, 20, 31};
  const struct {
    int64_t step;
    double f[8];
  } rows[] = {
      {0, {1, 0.511306, 0.326940, 0.167166, 0.106890, 0.0349465, 0.0114254, 9.765625e-4}},
      {547, {1, 0.504225, 0.254507, 0.100042, 0.0567108, 0.0157087, 0.00489660, 4.185268e-4}},
      {1094, {1, 0.504225, 0.254507, 0.0792315, 0.0408033, 0.0102250, 0.00311602, 2.663352e-4}},
      {1680, {1, 0.504225, 0.254507, 0.0736302, 0.0361749, 0.00871741, 0.00263663, 2.253606e-4}},
  };
  for (const auto& row : rows) {
    const std::vector<float> f = RotaryOf(row.step).frequencies;
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(f[columns[i]], row.f[i], kSixDigits * row.f[i])
          << "f_" << columns[i] << " at step " << row.step;
    }
    for (int j = 32; j < 64; ++j) EXPECT_EQ(f[j], 0.0f);
  }
}

TEST(RunLength, Total) {
  EXPECT_EQ(Record().run.total(), 1680);
  EXPECT_TRUE(Validate(Record().run).ok());
}

TEST(Momentum, T1_45_Momentum) {
  EXPECT_EQ(MomentumAt(Record().momentum, Record().run, 0), 0.85);
  EXPECT_NEAR(MomentumAt(Record().momentum, Record().run, 100), 0.883333,
              5.1e-7);  // 6 printed decimals
  EXPECT_NEAR(MomentumAt(Record().momentum, Record().run, 150), 0.90, 1e-15);
  EXPECT_EQ(MomentumAt(Record().momentum, Record().run, 300), 0.95);
}

TEST(BatchSize, T1_54_TrainingTokens) {
  EXPECT_EQ(TrainingTokens(Record().batch, Record().run), 660602880);
}

TEST(BatchSize, IsConstant) {
  for (const int64_t step : {0, 820, 1640, 1679, 1680, 9999}) {
    EXPECT_EQ(BatchTokensAt(Record().batch, Record().run, step), 2048 * 24 * 8) << step;
  }
}

TEST(Validation, Validates15Times) {
  std::vector<int64_t> points, want;
  for (int64_t step = 0; step <= 1680; ++step) {
    if (PlanStep(Record(), step).validates) points.push_back(step);
  }
  for (int64_t step = 0; step <= 1625; step += 125) want.push_back(step);
  want.push_back(1680);
  EXPECT_EQ(points, want);
  EXPECT_EQ(ValidationCount(Record().validation, Record().run), 15);
}

TEST(Schedules, PlansTheSteps) {
  const Schedules schedules = Record();
  ASSERT_TRUE(Validate(schedules).ok());
  const StepPlan first = PlanStep(schedules, 0);
  EXPECT_EQ(first.lr_multiplier, 1);
  EXPECT_EQ(first.windows.long_tokens, 384);
  EXPECT_EQ(first.windows.short_tokens, 128);
  EXPECT_EQ(first.momentum, 0.85);
  EXPECT_EQ(first.batch_tokens, 393216);
  EXPECT_TRUE(first.validates && first.trains && first.rotary_changes);

  const StepPlan change = PlanStep(schedules, 547);
  EXPECT_TRUE(change.trains && change.rotary_changes && !change.validates);
  EXPECT_EQ(change.momentum, 0.95);
  EXPECT_FALSE(PlanStep(schedules, 548).rotary_changes);

  const StepPlan last = PlanStep(schedules, 1680);
  EXPECT_TRUE(last.validates && last.rotary_changes && !last.trains);
  EXPECT_EQ(last.windows.long_tokens, 2560);
}

TEST(Schedules, TrainsExactlyTheStepsOfTheRun) {
  const Schedules schedules = Record();
  int64_t trained = 0;
  int64_t tokens = 0;
  int64_t validated = 0;
  for (int64_t step = 0; step <= 1680; ++step) {
    const StepPlan plan = PlanStep(schedules, step);
    trained += plan.trains;
    validated += plan.validates;
    if (plan.trains) tokens += plan.batch_tokens;
  }
  EXPECT_EQ(trained, 1680);
  EXPECT_EQ(validated, 15);
  EXPECT_EQ(tokens, 660602880);  // T1-54
}

}  // namespace
}  // namespace tools
