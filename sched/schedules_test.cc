#include "sched/schedules.h"

#include <cmath>

#include "gtest/gtest.h"
#include "sched/toy.h"

namespace sched {
namespace {

TEST(Schedules, RescalesTheWholeCourse) {
  const Schedules half = Rescaled(ToySchedules(), 840);
  EXPECT_EQ(half.run.scheduled_steps, 820);
  EXPECT_EQ(half.momentum.warmup_steps, 150);
  EXPECT_EQ(half.validation.every, 125);
  EXPECT_EQ(PlanStep(half, 410).lr_multiplier, 1);
  EXPECT_LT(PlanStep(half, 411).lr_multiplier, 1);
  EXPECT_EQ(PlanStep(half, 273).windows.long_tokens, 384);
  EXPECT_EQ(PlanStep(half, 274).windows.long_tokens, 896);

  const Schedules same = Rescaled(ToySchedules(), 1680);
  EXPECT_EQ(same.run.scheduled_steps, 1640);
  EXPECT_EQ(same.momentum.warmup_steps, 300);
}

// As modded-nanogpt's program does with num_iterations = 100 and iteration_extension = 10.
TEST(Schedules, KeepsWhatCountsInSteps) {
  const Schedules kept = Rescaled(ToySchedules(), 110, {.extension = 10, .momentum = true});
  EXPECT_EQ(kept.run.scheduled_steps, 100);
  EXPECT_EQ(kept.run.extension_steps, 10);
  EXPECT_EQ(kept.momentum.warmup_steps, 300);
  EXPECT_DOUBLE_EQ(PlanStep(kept, 30).momentum, 0.86);
  EXPECT_DOUBLE_EQ(PlanStep(kept, 109).momentum, 0.85 + 0.1 * 109 / 300);
  EXPECT_EQ(PlanStep(kept, 50).lr_multiplier, 1);
  EXPECT_LT(PlanStep(kept, 51).lr_multiplier, 1);

  const Schedules scaled = Rescaled(ToySchedules(), 110);
  EXPECT_EQ(scaled.run.extension_steps, 3);
  EXPECT_EQ(scaled.momentum.warmup_steps, 20);
  EXPECT_EQ(PlanStep(scaled, 30).momentum, 0.95);

  Schedules cooling = ToySchedules();
  cooling.momentum.cooldown_steps = 50;
  EXPECT_EQ(Rescaled(cooling, 840, {.momentum = true}).momentum.cooldown_steps, 50);
  EXPECT_EQ(Rescaled(cooling, 840, {.momentum = true}).run.extension_steps, 20);
  EXPECT_EQ(Rescaled(cooling, 840, {.extension = 0}).momentum.cooldown_steps, 25);
  EXPECT_EQ(Rescaled(cooling, 840, {.extension = 0}).run.scheduled_steps, 840);
}

TEST(Schedules, S1_EveryShortRunIsFinite) {
  for (int64_t total = 0; total <= 20; ++total) {
    const Schedules schedules = Rescaled(ToySchedules(), total);
    ASSERT_TRUE(Validate(schedules).ok()) << total;
    for (int64_t step = 0; step <= total; ++step) {
      const StepPlan plan = PlanStep(schedules, step);
      EXPECT_GE(plan.lr_multiplier, 0.1) << total << " " << step;
      EXPECT_LE(plan.lr_multiplier, 1) << total << " " << step;
      EXPECT_GE(plan.momentum, 0.85);
      EXPECT_LE(plan.momentum, 0.95);
      EXPECT_EQ(plan.trains, step < total);
    }
    EXPECT_TRUE(PlanStep(schedules, total).validates);
  }
}

TEST(Schedules, S3_PastTheEnd) {
  const StepPlan past = PlanStep(ToySchedules(), 2000);
  EXPECT_FALSE(past.trains || past.validates || past.rotary_changes);
  EXPECT_NEAR(past.lr_multiplier, 0.10018, 1e-15);
  EXPECT_EQ(past.windows, PlanStep(ToySchedules(), 1680).windows);
}

TEST(Schedules, S4_WarmUpAsLongAsTheRun) {
  Schedules schedules = ToySchedules();
  schedules.momentum.warmup_steps = schedules.run.total();
  for (int64_t step = 0; step <= schedules.run.total(); ++step) {
    ASSERT_TRUE(std::isfinite(PlanStep(schedules, step).momentum)) << step;
  }
}

// Of the parts that have no neutral value.
TEST(Schedules, RefusesWhatIsNotSet) {
  EXPECT_TRUE(Validate(ToySchedules()).ok());
  EXPECT_FALSE(Validate(With(ToySchedules(), [](Schedules& s) { s.window = {}; })).ok());
  EXPECT_FALSE(Validate(With(ToySchedules(), [](Schedules& s) { s.rotary = {}; })).ok());
  EXPECT_FALSE(Validate(With(ToySchedules(), [](Schedules& s) { s.batch = {}; })).ok());
  EXPECT_FALSE(Validate(With(ToySchedules(), [](Schedules& s) { s.validation = {}; })).ok());
  EXPECT_EQ(Schedules().run.total(), 0);
}

TEST(Schedules, ReportsTheFirstBadPart) {
  Schedules schedules = ToySchedules();
  schedules.batch.stages[0].fraction = 0.5;
  EXPECT_EQ(Validate(schedules).message(),
            "batch schedule: the fractions of its 1 stages sum to 0.5; they must sum to 1");
  schedules.run.scheduled_steps = -3;
  EXPECT_EQ(Validate(schedules).message(),
            "run length: -3 scheduled and 40 extension steps; neither may be negative");
}

}  // namespace
}  // namespace sched
