// What a run does beside training changes nothing in it; and what it says about its data is true
// of any number of ranks.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

constexpr int64_t kSteps = 6;

std::vector<std::string> TrainingLosses(const TestRun& run) {
  std::vector<std::string> losses = run.losses;
  losses.erase(
      std::remove_if(losses.begin(), losses.end(),
                     [](const std::string& line) { return absl::StrContains(line, "val_loss"); }),
      losses.end());
  return losses;
}

class NoTraceTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Records, NoTraceTest, AllRecords(), RecordName);

// Validating, saving and tracing in every step, against a run that does none of it: the same
// losses, weights, moments and place in the data.
TEST_P(NoTraceTest, ValidationsCheckpointsAndTracesLeaveNone) {
  TrainConfig config =
      TestConfig(FreshFolder(absl::StrCat("trace_", GetParam())), kSteps, {}, GetParam());
  config.out_dir = testing::TempDir() + "/plain_out_" + GetParam();
  std::filesystem::remove_all(config.out_dir);
  const TestRun plain = RunTraining(config);
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  const Checkpoint before = *LoadLatestCheckpoint(config.checkpoint_root());

  config.out_dir = testing::TempDir() + "/busy_out_" + GetParam();
  std::filesystem::remove_all(config.out_dir);
  config.recipe.schedules.validation.every = 1;
  config.checkpoint_every = 1;
  RunTrace trace({.skip = 1, .steps = 3});
  const TestRun busy = RunTraining(config, &trace);
  ASSERT_TRUE(busy.status.ok()) << busy.status;
  const Checkpoint after = *LoadLatestCheckpoint(config.checkpoint_root());

  EXPECT_EQ(static_cast<int64_t>(busy.losses.size()), 2 * kSteps + 1);
  EXPECT_EQ(TrainingLosses(busy), TrainingLosses(plain));
  EXPECT_EQ(busy.val_loss, plain.val_loss);
  EXPECT_TRUE(after.model.tensors == before.model.tensors);
  EXPECT_TRUE(after.optimizer.tensors == before.optimizer.tensors);
  EXPECT_EQ(StreamOf(busy), StreamOf(plain));
}

// The hash of the tokens that the ranks have read is that of the data, however they share it, also
// over an interruption; other data has another.
TEST_P(NoTraceTest, TheTokenStreamIsTheSameForAnyRanks) {
  TrainConfig config =
      TestConfig(FreshFolder(absl::StrCat("stream_", GetParam())), kSteps, {}, GetParam());
  config.deterministic = false;
  const std::string one = StreamOf(RunTraining(config));
  EXPECT_TRUE(absl::EndsWith(one, absl::StrCat(" over ", kSteps, " steps of 8 slots"))) << one;
  for (const int world_size : {3, 8}) {
    config.world_size = world_size;
    config.out_dir = testing::TempDir() + "/stream_out_" + GetParam();
    std::filesystem::remove_all(config.out_dir);
    config.checkpoint_every = 4;
    EXPECT_EQ(StreamOf(RunTraining(config)), one) << world_size << " ranks";
    std::filesystem::remove_all(absl::StrCat(config.checkpoint_root(), "/step-0000000", kSteps));
    config.resume = true;
    config.world_size = 2;
    EXPECT_EQ(StreamOf(RunTraining(config)), one) << "resumed";
    config.resume = false;
  }
  CHECK(data::WriteShard(config.train_files[0], SyntheticTokens(kTestTokens, 9)).ok());
  EXPECT_NE(StreamOf(RunTraining(config)), one);
}

// Case S7: a run that was killed when the batch's size was about to change, or in the last step
// before it did, goes on as the unbroken one: losses, which rate and window decide, and all state.
TEST_P(NoTraceTest, S7_ResumesWhereAStageBegins) {
  TrainConfig config =
      TestConfig(FreshFolder(absl::StrCat("stage_", GetParam())), kSteps, {}, GetParam());
  std::vector<int64_t> places = {kSteps / 2};
  for (const data::LoaderStage& stage : config.loader_stages()) {
    if (stage.first_step > 1) places.insert(places.end(), {stage.first_step, stage.first_step - 1});
  }
  ExpectResumesAt(config, places);
}

}  // namespace
}  // namespace tools
