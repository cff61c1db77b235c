#include "tools/eval/validation.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tools/trainer/test_run.h"
#include "tools/trainer/weights.h"

namespace tools {
namespace {

class ValidationTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    config_ = TestConfig(FreshFolder(std::string("eval_") + GetParam()), 4, {}, GetParam());
    run_ = RunTraining(config_);
    ASSERT_TRUE(run_.status.ok()) << run_.status;
    saved_.recipe = config_.recipe;
    saved_.step = config_.total_steps();
    saved_.token_map = config_.token_map;
    saved_.weights = *model::ParameterArena::Create(config_.recipe.model, 0, kernels::CpuBackend());
    const absl::Status set =
        WeightsFromHost(run_.weights, "the run", saved_.weights->parameters(), *queue_);
    ASSERT_TRUE(set.ok()) << set;
  }

  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
  TrainConfig config_;
  TestRun run_;
  SavedModel saved_;
};

TEST_P(ValidationTest, LossHasTheBitsOfTheTrainingsOwn) {
  const auto loss = Validate(saved_, config_.val_files, 0, *EvaluationWindows(saved_, 0), *queue_);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(loss->loss, run_.val_loss);
  EXPECT_EQ(loss->tokens, config_.recipe.data.val_tokens);
}

TEST_P(ValidationTest, AnotherWindowIsAnotherLoss) {
  const auto windows = EvaluationWindows(saved_, 32);
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ(windows->long_tokens, 32);
  EXPECT_EQ(windows->short_tokens, 16);
  EXPECT_EQ(EvaluationWindows(saved_, 112)->short_tokens, 48);
  const auto loss = Validate(saved_, config_.val_files, 0, *windows, *queue_);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NE(loss->loss, run_.val_loss);
  EXPECT_NEAR(loss->loss, run_.val_loss, 0.5);
  EXPECT_EQ(EvaluationWindows(saved_, 16).ok(), config_.recipe.model.window_block > 0);
  EXPECT_FALSE(EvaluationWindows(saved_, 40).ok());
  EXPECT_FALSE(EvaluationWindows(saved_, -16).ok());
}

TEST_P(ValidationTest, FewerTokens) {
  const sched::Windows windows = *EvaluationWindows(saved_, 0);
  const auto loss = Validate(saved_, config_.val_files, 64, windows, *queue_);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(loss->tokens, 64);
  EXPECT_NE(loss->loss, run_.val_loss);
  EXPECT_FALSE(Validate(saved_, config_.val_files, 100, windows, *queue_).ok());
  EXPECT_EQ(Validate(saved_, config_.val_files, 64'000'000, windows, *queue_).status().code(),
            absl::StatusCode::kOutOfRange);
}

INSTANTIATE_TEST_SUITE_P(Records, ValidationTest, AllRecords(), RecordName);

}  // namespace
}  // namespace tools
