// Whole runs that meet NaN and infinity: they stop or skip, say where, and never save what is bad.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/exit_code.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// From element `begin` on, `count` elements become `value`.
void Set(HostTensor* tensor, int64_t begin, int64_t count, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const auto width = static_cast<int64_t>(kernels::SizeOf(tensor->dtype));
  const std::string element(reinterpret_cast<const char*>(&bits) + 4 - width, width);
  for (int64_t i = begin; i < begin + count; ++i) {
    tensor->bytes.replace(i * width, width, element);
  }
}

// The initial weights of the run, which are left in --save_init too.
SafetensorsFile InitialWeights(TrainConfig config) {
  config.recipe.schedules = sched::Rescaled(config.recipe.schedules, 0);
  config.save_init = testing::TempDir() + "/init.safetensors";
  const TestRun run = RunTraining(config);
  CHECK(run.status.ok()) << run.status;
  return *ReadSafetensors(config.save_init);
}

constexpr uint16_t kRare = 255;  // a byte that the files lack but in the places below

// Weights that are all finite and yet give an infinite loss wherever the byte kRare is read: its
// value embeddings are as large as bf16 goes, and the blend with them multiplies by 16.
SafetensorsFile WeightsThatOverflowAtRareByte(const TrainConfig& config) {
  SafetensorsFile file = InitialWeights(config);
  int changed = 0;
  for (auto& [name, tensor] : file.tensors) {
    if (absl::StartsWith(name, "value_embeds")) {
      const int64_t width = tensor.shape.back();
      Set(&tensor, kRare * width, width, 3.3e38f);
      ++changed;
    }
    if (absl::StrContains(name, "scalars") || absl::StrContains(name, "lambdas")) {
      Set(&tensor, 0, static_cast<int64_t>(tensor.bytes.size() / kernels::SizeOf(tensor.dtype)),
          16.0f);
      ++changed;
    }
  }
  CHECK_GE(changed, 2) << "these weights have other names";
  return file;
}

// Shards without kRare but at `places` of the training shard.
void WriteShards(const TrainConfig& config, const std::vector<int64_t>& places) {
  std::vector<uint16_t> tokens = SyntheticTokens(8192, 3);
  for (uint16_t& token : tokens) {
    if (token < 256) token = token / 2;
  }
  CHECK(data::WriteShard(config.val_files[0], tokens).ok());
  for (const int64_t place : places) tokens[place] = kRare;
  CHECK(data::WriteShard(config.train_files[0], tokens).ok());
}

TrainConfig ConfigThatOverflows(const std::string& name, int64_t steps,
                                const std::vector<int64_t>& places, SafetensorsFile* init) {
  TrainConfig config = TestConfig(FreshFolder(name), steps);
  WriteShards(config, places);
  *init = WeightsThatOverflowAtRareByte(config);
  config.init_from = testing::TempDir() + "/" + name + "/overflows.safetensors";
  CHECK(WriteSafetensors(config.init_from, *init).ok());
  config.out_dir = testing::TempDir() + "/" + name + "/out";
  return config;
}

TEST(NonFinite, AWeightIsNamedByTheFirstValidation) {
  const std::string folder = FreshFolder("not_finite");
  TrainConfig config = TestConfig(folder, 2);
  SafetensorsFile file = InitialWeights(config);
  Set(&file.tensors.at("lm_head.weight"), 0, 1, std::numeric_limits<float>::quiet_NaN());
  config.init_from = folder + "/poisoned.safetensors";
  ASSERT_TRUE(WriteSafetensors(config.init_from, file).ok());
  for (const int world_size : {1, 3}) {
    config.world_size = world_size;
    const absl::Status status = RunTraining(config).status;
    EXPECT_EQ(ExitCode(status), 2) << status;
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  "the validation loss at step 0 is nan; weight lm_head.weight is "
                                  "not finite at element 0 (rank 0)"))
        << status;
  }
}

// Case N4: the loss of the first step is not finite, its update is not made, and what was there
// before is saved.
TEST(NonFinite, N4_AStepLeavesTheWeights) {
  SafetensorsFile init;
  TrainConfig config = ConfigThatOverflows("bad_step", 2, {1}, &init);
  const std::string out = config.out_dir;
  for (const int world_size : {1, 3}) {
    config.world_size = world_size;
    config.out_dir = absl::StrCat(out, world_size);
    const absl::Status status = RunTraining(config).status;
    EXPECT_EQ(ExitCode(status), 2) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "training stopped at step 0")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "the loss of slot 0 is nan; gradient of "))
        << status;
    EXPECT_TRUE(LoadCheckpoint(StepFolder(config, 0))->model.tensors == init.tensors);

    // Gone on from there, that step's tokens are read again, and counted once.
    config.on_nonfinite = OnNonFinite::kSkip;
    config.resume = true;
    const std::string resumed = StreamOf(RunTraining(config));
    config.resume = false;
    config.out_dir.clear();
    EXPECT_EQ(StreamOf(RunTraining(config)), resumed);
    config.on_nonfinite = OnNonFinite::kStop;
  }
}

// The same run with --on_nonfinite=skip: that step is left out, named and counted, and the rest
// trains, on any number of ranks with the same bits; resumed, too.
TEST(NonFinite, N4_SkippedStepsAreCounted) {
  SafetensorsFile init;
  TrainConfig config = ConfigThatOverflows("skip", 4, {1}, &init);
  config.on_nonfinite = OnNonFinite::kSkip;
  config.checkpoint_every = 1;
  const std::string out = config.out_dir;
  TestRun first;
  for (const int world_size : {1, 3}) {
    config.world_size = world_size;
    config.out_dir = absl::StrCat(out, world_size);
    const TestRun run = RunTraining(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_TRUE(absl::StrContains(run.log, "step 1 was left out (1 so far): the loss of slot 0 is"))
        << run.log;
    EXPECT_TRUE(absl::StrContains(run.log, "1 of 4 steps were left out")) << run.log;
    ASSERT_EQ(run.losses.size(), 6u);
    EXPECT_EQ(run.losses[1], "{\"step\":1,\"loss\":null");
    EXPECT_FALSE(absl::StrContains(run.losses[2], "null"));
    // Nothing of the step is left in the weights, and the next one changes them.
    EXPECT_TRUE(LoadCheckpoint(StepFolder(config, 1))->model.tensors == init.tensors);
    EXPECT_FALSE(LoadCheckpoint(StepFolder(config, 2))->model.tensors == init.tensors);
    if (world_size == 1) first = run;
    EXPECT_EQ(run, first) << world_size << " ranks";
  }
  // The count goes with the checkpoint.
  fs::remove_all(StepFolder(config, 4));
  fs::remove_all(StepFolder(config, 3));
  config.resume = true;
  const TestRun resumed = RunTraining(config);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_TRUE(absl::StrContains(resumed.log, "1 of 4 steps were left out")) << resumed.log;
  EXPECT_TRUE(resumed.weights == first.weights);
}

// A run that has gone wrong for good does not look like one that trains.
TEST(NonFinite, N4_NotEveryStepIsSkipped) {
  SafetensorsFile init;
  std::vector<int64_t> everywhere;
  for (int64_t at = 1; at < 8192; at += 40) everywhere.push_back(at);
  TrainConfig config = ConfigThatOverflows("skip_all", 14, everywhere, &init);
  config.on_nonfinite = OnNonFinite::kSkip;
  config.out_dir.clear();
  const TestRun run = RunTraining(config);
  EXPECT_EQ(ExitCode(run.status), 2) << run.status;
  EXPECT_TRUE(absl::StrContains(run.status.message(), "training stopped at step 10")) << run.status;
  EXPECT_TRUE(absl::StrContains(run.status.message(), "has left out 10 steps in a row"))
      << run.status;
}

// Gradients are finite, and the update is not: such weights are neither saved nor trained on, and
// are no step to skip.
TEST(NonFinite, AnUpdateThatOverflowsIsNotSaved) {
  for (const OnNonFinite on : {OnNonFinite::kStop, OnNonFinite::kSkip}) {
    for (const bool saves : {true, false}) {
      TrainConfig config = TestConfig(FreshFolder("bad_update"), 3);
      config.on_nonfinite = on;
      for (optim::ParamRow& row : config.recipe.optimizer.table) {
        if (row.label == "lm_head") row.lr = 1e39;
      }
      config.out_dir = testing::TempDir() + "/bad_update/out";
      config.checkpoint_every = saves ? 1 : 0;
      const absl::Status status = RunTraining(config).status;
      EXPECT_EQ(ExitCode(status), 2) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "weight lm_head.weight is not finite"))
          << status;
      EXPECT_TRUE(absl::StrContains(
          status.message(), saves ? "no checkpoint of step 1 was written" : "stopped at step 1"))
          << status;
      EXPECT_FALSE(fs::exists(StepFolder(config, 1)));
    }
  }
}

// Case K2-24: --resume is advised where there is a checkpoint to go on from, and only there.
TEST(NonFinite, K2_24_AdviceIsTrue) {
  TrainConfig config = TestConfig(FreshFolder("advice"), 3);
  config.out_dir = testing::TempDir() + "/advice/out";
  config.checkpoint_every = 1;
  const TrainConfig good = config;
  for (optim::ParamRow& row : config.recipe.optimizer.table) {
    if (row.label == "lm_head") row.lr = 1e39;
  }
  const std::string none =
      absl::StrCat("there is no checkpoint to go on from in ", config.checkpoint_root());
  absl::Status status = RunTraining(config).status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no checkpoint of step 1 was written")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), none)) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "--resume")) << status;
  config.checkpoint_every = 0;  // found by the next step
  status = RunTraining(config).status;
  EXPECT_TRUE(absl::StrContains(status.message(), "these weights were not saved")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), none)) << status;
  config.resume = true;
  status = RunTraining(config).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "without --resume a run begins there")) << status;

  ASSERT_TRUE(RunTraining(good).status.ok());
  fs::remove_all(StepFolder(config, 3));
  config.checkpoint_every = 1;
  status = RunTraining(config).status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no checkpoint of step 3 was written")) << status;
  EXPECT_TRUE(absl::StrContains(
      status.message(), absl::StrCat("--resume goes on from step 2, the last checkpoint in ",
                                     config.checkpoint_root())))
      << status;
}

}  // namespace
}  // namespace tools
