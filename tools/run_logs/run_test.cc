#include "tools/run_logs/run.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StepRow Trained(int64_t step, std::optional<double> loss = {}) {
  StepRow row;
  row.step = step;
  row.loss = loss;
  return row;
}

std::vector<int64_t> StepsOf(const TrainingRun& run) {
  std::vector<int64_t> steps;
  for (const StepRow& row : run.steps) steps.push_back(row.step);
  return steps;
}

// Each row's own step time after the last known clock; a validation's clock counts more.
TEST(Complete, TimesFromStepTimes) {
  TrainingRun run;
  for (int64_t step = 1; step <= 4; ++step) {
    run.steps.push_back(Trained(step));
    run.steps.back().step_ms = 10;
    run.steps.back().tokens = 100.0 * static_cast<double>(step);
  }
  run.validations = {{0, 9, 0.0}, {2, 5, 25.0}, {4, 4, 47.0}};
  Complete(&run);
  EXPECT_EQ(run.steps[0].train_ms, 10);
  EXPECT_EQ(run.steps[1].train_ms, 20);
  EXPECT_EQ(run.steps[2].train_ms, 35);
  EXPECT_EQ(run.steps[3].train_ms, 45);
  EXPECT_EQ(run.steps[3].batch_tokens, 100);
  EXPECT_EQ(run.steps[3].tokens_per_s, 10000);
  EXPECT_EQ(run.validations[0].tokens, 0);
  EXPECT_EQ(run.validations[1].tokens, 200);
}

TEST(Complete, StepTimesFromTimes) {
  TrainingRun run;
  run.batch_tokens = 50;
  for (const auto& [step, ms] : {std::pair<int64_t, double>{1, 30}, {2, 42}, {5, 72}, {6, 3}}) {
    run.steps.push_back(Trained(step));
    run.steps.back().train_ms = ms;
  }
  Complete(&run);
  EXPECT_EQ(run.steps[0].step_ms, 30);
  EXPECT_EQ(run.steps[1].step_ms, 12);
  EXPECT_EQ(run.steps[2].step_ms, 10);            // of three steps
  EXPECT_EQ(run.steps[3].step_ms, std::nullopt);  // the clock was set back
  EXPECT_EQ(run.steps[2].tokens, 250);
  EXPECT_EQ(run.steps[2].tokens_per_s, 5000);
}

TEST(Complete, UnknownStaysUnknown) {
  TrainingRun run;
  run.steps = {Trained(1), Trained(2)};
  run.validations = {{0, 9, {}}, {2, 5, {}}};
  Complete(&run);
  EXPECT_EQ(run.steps[1].tokens, std::nullopt);
  EXPECT_EQ(run.steps[1].train_ms, std::nullopt);
  EXPECT_EQ(run.validations[0].tokens, std::nullopt);
}

TEST(TrainingRun, FinalValidation) {
  TrainingRun run;
  run.steps = {Trained(1), Trained(2)};
  run.validations = {{2, 5, {}}};
  ASSERT_NE(run.final_validation(), nullptr);
  EXPECT_EQ(run.final_validation()->loss, 5);
  run.planned_steps = 3;
  EXPECT_EQ(run.final_validation(), nullptr);
  run.planned_steps = 2;
  run.steps.push_back(Trained(3));
  EXPECT_EQ(run.final_validation(), nullptr);
}

TEST(RunRows, ResumedRunReplacesItsRows) {
  TrainingRun run;
  RunRows rows(&run);
  ASSERT_TRUE(rows.Add(1, ValidationRow{0, 9}).ok());
  for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(rows.Add(step + 1, Trained(step, 8)).ok());
  ASSERT_TRUE(rows.Add(6, ValidationRow{4, 7}).ok());
  ASSERT_TRUE(rows.Add(7, Trained(3, 6)).ok());
  ASSERT_TRUE(rows.Add(8, Trained(4, 5)).ok());
  EXPECT_THAT(StepsOf(run), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(run.steps[2].loss, 6);
  EXPECT_EQ(run.validations.size(), 1);
  ASSERT_EQ(run.notes.size(), 1);
  EXPECT_THAT(run.notes[0], HasSubstr("line 7: goes back from step 4 to step 2"));
}

TEST(RunRows, ResumedRunValidatesItsCheckpoint) {
  TrainingRun run;
  RunRows rows(&run);
  for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(rows.Add(step, Trained(step)).ok());
  ASSERT_TRUE(rows.Add(5, ValidationRow{2, 7}).ok());
  EXPECT_THAT(StepsOf(run), ElementsAre(1, 2));
  // A finished run says its result again.
  ASSERT_TRUE(rows.Add(6, ValidationRow{2, 7}).ok());
  EXPECT_EQ(run.validations.size(), 1);
  EXPECT_EQ(run.notes.size(), 1);
}

TEST(RunRows, SecondRunIsRefused) {
  TrainingRun run;
  RunRows rows(&run);
  ASSERT_TRUE(rows.Add(1, ValidationRow{0, 9}).ok());
  ASSERT_TRUE(rows.Add(2, Trained(1)).ok());
  EXPECT_THAT(std::string(rows.Add(3, ValidationRow{0, 9}).message()),
              HasSubstr("line 3: a second run begins here"));
  EXPECT_THAT(std::string(rows.Add(4, Trained(1)).message()), HasSubstr("line 4"));
}

TEST(NoteGaps, EndsAndNan) {
  TrainingRun run;
  run.planned_steps = 9;
  for (int64_t step = 1; step <= 7; ++step) run.steps.push_back(Trained(step, std::nan("")));
  run.validations = {{0, std::nan(""), {}}};
  NoteGaps(&run);
  EXPECT_THAT(run.notes,
              ElementsAre("ends at step 7 of 9",
                          "the training loss is not finite at step 1, 2, 3, 4, 5 and 2 more",
                          "the validation loss is not finite at step 0"));
  TrainingRun whole;
  whole.steps = {Trained(1, 3)};
  whole.validations = {{1, 2, {}}};
  NoteGaps(&whole);
  EXPECT_THAT(whole.notes, IsEmpty());
}

}  // namespace
}  // namespace tools
