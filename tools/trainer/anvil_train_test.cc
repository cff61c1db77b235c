// Whole runs with Anvil, over the step in which its rails engage, all changes of batches and
// windows, and the parting of head and embedding.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 22;

// Of 22 steps 18 are scheduled: stages start at 5, 11 and 17, the extension at 18; the rails engage
// at 9, and head and embedding are tied up to step 19. The value embeddings are due at 1, 3 and 5,
// then at 7, 11, 15 and 19.
TrainConfig AnvilTest(const std::string& name) {
  TrainConfig config = TestConfig(FreshFolder(name), kSteps, {}, "anvil");
  Recipe& recipe = config.recipe;
  recipe.schedules.run = {.scheduled_steps = 18, .extension_steps = 4};
  CHECK_EQ(sched::LastTiedStep(recipe.schedules.tying, recipe.schedules.run), 19);
  CHECK_EQ(recipe.optimizer.table[0].rails.engaged_from, 9);
  for (const optim::ParamRow& row : recipe.optimizer.table) {
    CHECK_EQ(row.later.from_step, row.later.changes() ? 6 : 0) << row.label;
  }
  std::vector<int64_t> starts;
  for (const sched::BatchStart& start :
       sched::BatchStarts(recipe.schedules.batch, recipe.schedules.run)) {
    starts.push_back(start.first_step);
  }
  CHECK(starts == (std::vector<int64_t>{0, 5, 11, 17, 18}));
  return config;
}

double LossOf(const std::string& line) {
  const size_t at = line.find("loss\":");
  CHECK(at != std::string::npos) << line;
  return std::stod(line.substr(at + 6));
}

TEST(AnvilTrain, LearnsAndRepeatsBitForBit) {
  TrainConfig config = AnvilTest("anvil_twice");
  config.deterministic = false;
  config.slots_per_pass = 3;
  const TestRun first = RunTraining(config);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(RunTraining(config), first);
  const double start = LossOf(first.losses.front());
  EXPECT_TRUE(std::isfinite(first.val_loss));
  EXPECT_LT(first.val_loss, start - 0.5);  // 5.95, that of guessing, at first
}

// The same run cut before, at and after each change, and gone on with on other ranks.
TEST(AnvilTrain, AN_04_ResumesAcrossEveryChange) {
  TrainConfig config = AnvilTest("anvil_resume");
  ExpectResumesAt(config, {1, 5, 6, 7, 9, 10, 12, 17, 18, 20, 21});
}

// Gathers of the banks are in flight between the steps, and validations, checkpoints and the end of
// a run read whole weights all the same: as with gathers that are waited for within the step.
TEST(AnvilTrain, AN_28_DeferredGathersLeaveNoTrace) {
  TrainConfig config = AnvilTest("anvil_deferred");
  config.deterministic = false;
  config.world_size = 3;
  config.recipe.schedules.validation.every = 5;
  config.out_dir = std::string(fs::path(config.metrics).parent_path()) + "/out";
  config.checkpoint_every = 7;
  const auto run = [&config] {
    fs::remove_all(config.checkpoint_root());
    const TestRun trained = RunTraining(config);
    CHECK(trained.status.ok()) << trained.status;
    return trained;
  };
  const TestRun deferred = run();
  const Checkpoint half = *LoadCheckpoint(StepFolder(config, 14));
  for (optim::ParamRow& row : config.recipe.optimizer.table) {
    const bool bank = row.label == "qk" || row.label == "vo" || row.label == "mlp";
    EXPECT_EQ(std::exchange(row.defer_gather, false), bank) << row.label;
  }
  EXPECT_EQ(run(), deferred);
  EXPECT_TRUE(LoadCheckpoint(StepFolder(config, 14))->model.tensors == half.model.tensors);
}

// The slot of the MLP bank behind the layers keeps its bits for the whole run; the others do not.
TEST(AnvilTrain, AN_13_TheDeadSlotIsFrozen) {
  TrainConfig config = AnvilTest("anvil_frozen");
  config.save_init = std::string(fs::path(config.metrics).parent_path()) + "/init.safetensors";
  const TestRun run = RunTraining(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const TensorMap before = ReadSafetensors(config.save_init)->tensors;
  const HostTensor &start = before.at("mlp_bank"), &end = run.weights.at("mlp_bank");
  ASSERT_EQ(start.shape[0], 12);
  const int64_t slot = static_cast<int64_t>(start.bytes.size()) / 12;
  for (int64_t i = 0; i < 12; ++i) {
    const bool same =
        std::equal(start.bytes.begin() + i * slot, start.bytes.begin() + (i + 1) * slot,
                   end.bytes.begin() + i * slot);
    EXPECT_EQ(same, i == 11) << i;
  }
}

// What the rails and the rest of the rule need is in a checkpoint, and nothing of NorMuon's.
TEST(AnvilTrain, StateOfACheckpoint) {
  TrainConfig config = AnvilTest("anvil_state");
  config.out_dir = std::string(fs::path(config.metrics).parent_path()) + "/out";
  config.checkpoint_every = kSteps;
  ASSERT_TRUE(RunTraining(config).status.ok());
  const absl::StatusOr<Checkpoint> checkpoint = LoadCheckpoint(StepFolder(config, kSteps));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const char* bank : {"qk_bank", "vo_bank", "mlp_bank"}) {
    for (const char* kind :
         {"muon.momentum/", "anvil.slow_rail/", "anvil.second_moment/", "anvil.mantissa/"}) {
      EXPECT_EQ(checkpoint->optimizer.tensors.count(absl::StrCat(kind, bank)), 1u) << kind << bank;
    }
    EXPECT_EQ(checkpoint->optimizer.tensors.count(absl::StrCat("normuon.mantissa/", bank)), 0u);
  }
}

}  // namespace
}  // namespace tools
