// The same run on every number of ranks, for every record.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// Enough for every change of batch size, windows and, where there is a pair, its parting.
constexpr int64_t kSteps = 13;

class WorldSize : public testing::TestWithParam<const char*> {
 protected:
  TrainConfig Config(const std::string& name, int64_t steps = kSteps) const {
    TrainConfig config = TestConfig(FreshFolder(absl::StrCat("world_size_", name, GetParam())),
                                    steps, {}, GetParam());
    config.out_dir = fs::path(config.metrics).parent_path() / "out";
    return config;
  }
};

// What the last checkpoint's folder holds, but for the times in state.json.
std::vector<std::string> FilesOf(const TrainConfig& config) {
  std::vector<std::string> files;
  for (const auto& folder : fs::directory_iterator(config.checkpoint_root())) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      std::string text = *ReadFile(folder.path() / name);
      if (const size_t at = text.find("\"train_ms\""); at != std::string::npos) {
        text.erase(at, text.find_first_of(",}", at) - at);
      }
      files.push_back(std::move(text));
    }
  }
  return files;
}

optim::StepLayout LayoutOf(const TrainConfig& config) {
  absl::StatusOr<optim::StepLayout> layout =
      optim::PlanStep(config.recipe.optimizer, model::ParameterSpecs(config.recipe.model));
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

// Whether on that many ranks some buffer of matrices needs padding; whether the last rank owns
// nothing of one.
bool HasPadding(const TrainConfig& config, int ranks) {
  const std::vector<optim::BufferLayout> muon = LayoutOf(config).muon;
  return std::any_of(muon.begin(), muon.end(),
                     [&](const auto& b) { return b.Padded(ranks) > b.size(); });
}
bool LeavesARankWithout(const TrainConfig& config, int ranks) {
  const std::vector<optim::BufferLayout> muon = LayoutOf(config).muon;
  return std::any_of(muon.begin(), muon.end(),
                     [&](const auto& b) { return b.Chunk(ranks) * (ranks - 1) >= b.size(); });
}

// Losses, weights and the bytes of the checkpoint. 3, 5, 6 and 7 ranks have unequal numbers of
// slots. T2-37, T2-38, UO-12.
TEST_P(WorldSize, T1_53_SameBitsOnOneToEightRanks) {
  TrainConfig config = Config("eight");
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  ASSERT_EQ(one.losses.size(), size_t{kSteps + 2});
  const std::vector<std::string> files = FilesOf(config);
  ASSERT_EQ(files.size(), 3u);
  bool padding = false;
  for (int world_size = 2; world_size <= 8; ++world_size) {
    fs::remove_all(config.out_dir);
    config.world_size = world_size;
    padding = padding || HasPadding(config, world_size);
    const TestRun run = RunTraining(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.losses, one.losses) << world_size;
    EXPECT_TRUE(run.weights == one.weights) << world_size;
    EXPECT_TRUE(FilesOf(config) == files) << "the checkpoint of " << world_size << " ranks";
  }
  EXPECT_TRUE(padding) << "no number of ranks has to pad matrices";
}

// More ranks than a record has slots, with more slots: 16 ranks have two or one, and with so many
// ranks some own no matrix of a buffer.
TEST_P(WorldSize, SameBitsOnMoreThanEightRanks) {
  TrainConfig config = Config("more", /*steps=*/5);
  config.recipe.data.slots = 24;
  for (sched::BatchStage& stage : config.recipe.schedules.batch.stages) stage.tokens *= 3;
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  const std::vector<std::string> files = FilesOf(config);
  for (const int world_size : {12, 16}) {
    ASSERT_TRUE(LeavesARankWithout(config, world_size)) << world_size;
    fs::remove_all(config.out_dir);
    config.world_size = world_size;
    const TestRun run = RunTraining(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_TRUE(run == one) << world_size;
    EXPECT_TRUE(FilesOf(config) == files) << world_size;
  }
}

// Stopped and gone on with other ranks, again and again: 4, 3, 8, 1. Each run goes to the end, and
// its later checkpoints are thrown away, as if it had been killed; what it did until then is
// compared.
TEST_P(WorldSize, ElasticResumeIsTheUnbrokenRun) {
  TrainConfig config = Config("elastic");
  config.checkpoint_every = 1;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  const std::string unbroken = absl::StrCat(config.out_dir, "/unbroken");
  fs::rename(config.checkpoint_root(), unbroken);
  const auto name = [](int64_t step) {
    return absl::StrCat(step < 10 ? "/step-0000000" : "/step-000000", step);
  };
  int64_t done = 0;
  for (const auto& [world_size, stop] :
       std::vector<std::pair<int, int64_t>>{{4, 3}, {3, 6}, {8, 11}, {1, kSteps}}) {
    config.world_size = world_size;
    config.resume = done > 0;
    const TestRun part = RunTraining(config);
    ASSERT_TRUE(part.status.ok()) << world_size << " ranks from step " << done << ": "
                                  << part.status;
    // Losses of the steps from `done` on, with the validation before the first and after the last.
    const auto tail = whole.losses.end() - (kSteps - done) - (done == 0 ? 2 : 1);
    EXPECT_EQ(part.losses, std::vector<std::string>(tail, whole.losses.end())) << world_size;
    EXPECT_TRUE(part.weights == whole.weights) << world_size;
    for (int64_t step = done + 1; step <= kSteps; ++step) {
      const std::string mine = config.checkpoint_root() + name(step);
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
        EXPECT_TRUE(*ReadFile(mine + file) == *ReadFile(unbroken + name(step) + file))
            << world_size << " ranks, step " << step << file;
      }
      if (step > stop) fs::remove_all(mine);
    }
    done = stop;
  }
}

INSTANTIATE_TEST_SUITE_P(Records, WorldSize, AllRecords(), RecordName);

}  // namespace
}  // namespace tools
