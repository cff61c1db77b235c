// Whole runs of the record of 2026-01-18, over changes of batch size and windows and the parting of
// head and embedding.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 13;

// Of 13 steps 12 are scheduled: batches and windows change in steps 4, 8 and, the windows, 12;
// head and embedding are tied up to step 9.
TrainConfig UnifiedTest(const std::string& name) {
  TrainConfig config = TestConfig(FreshFolder(name), kSteps, {}, "unified_optimizers");
  sched::Schedules& schedules = config.recipe.schedules;
  schedules.run = {.scheduled_steps = 12, .extension_steps = 1};
  CHECK_EQ(sched::LastTiedStep(schedules.tying, schedules.run), 9);
  return config;
}

Checkpoint Load(const TrainConfig& config, int64_t step) {
  absl::StatusOr<Checkpoint> checkpoint = LoadCheckpoint(StepFolder(config, step));
  CHECK(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

// bf16 [rows, cols] and [cols, rows]
bool IsTranspose(const HostTensor& a, const HostTensor& b) {
  const int64_t rows = a.shape[0], cols = a.shape[1];
  CHECK(b.shape == (std::vector<int64_t>{cols, rows}));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if (std::memcmp(&a.bytes[2 * (r * cols + c)], &b.bytes[2 * (c * rows + r)], 2) != 0) {
        return false;
      }
    }
  }
  return true;
}

TEST(UnifiedTrain, TheSameSeedTwiceIsTheSameBitsAndRanksAgreeClosely) {
  TrainConfig config = UnifiedTest("unified_twice");
  config.deterministic = false;
  config.slots_per_pass = 3;
  const TestRun first = RunTraining(config);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(RunTraining(config), first);
  config.deterministic = true;
  const TestRun fixed_order = RunTraining(config);
  ASSERT_TRUE(fixed_order.status.ok()) << fixed_order.status;
  // Only the order of sums differs; roundings to bf16 make it visible.
  EXPECT_NEAR(first.val_loss, fixed_order.val_loss, 0.02);
}

TEST(UnifiedTrain, UO_06_UO_28_TiedUntilTheStepThatParts) {
  TrainConfig config = UnifiedTest("unified_tied");
  config.out_dir = fs::path(config.metrics).parent_path() / "out";
  config.checkpoint_every = 1;
  const TestRun run = RunTraining(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (int64_t step = 1; step <= kSteps; ++step) {  // after that many updates
    const Checkpoint checkpoint = Load(config, step);
    const TensorMap& weights = checkpoint.model.tensors;
    const bool tied = IsTranspose(weights.at("lm_head.weight"), weights.at("embed.weight"));
    // Steps 0 .. 9 are tied; 10 changes neither, 11 is the first that updates both.
    EXPECT_EQ(tied, step <= 11) << step;
    // The moments of the embedding are there from step 10 on, where it is on its own.
    const bool own = checkpoint.optimizer.tensors.count("adam.m/embed.weight") > 0;
    EXPECT_EQ(own, step > 10) << step;
    if (step == 11) {
      const TensorMap& state = checkpoint.optimizer.tensors;
      const HostTensor& head = state.at("adam.m/lm_head.weight");
      const HostTensor& embed = state.at("adam.m/embed.weight");
      ASSERT_EQ(head.bytes.size(), embed.bytes.size());
      const int64_t dim = head.shape[0], vocab = head.shape[1];
      for (int64_t i = 0; i < dim * vocab; ++i) {
        ASSERT_EQ(
            std::memcmp(&head.bytes[4 * i], &embed.bytes[4 * (i % vocab * dim + i / vocab)], 4), 0);
      }
    }
  }
}

// The first update would throw away the embedding of weights whose head has parted from it.
TEST(UnifiedTrain, InitialWeightsThatHavePartedAreRefused) {
  TrainConfig config = UnifiedTest("unified_parted");
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/out";
  ASSERT_TRUE(RunTraining(config).status.ok());
  config.init_from = StepFolder(config, kSteps) + "/model.safetensors";
  config.out_dir.clear();
  const absl::Status status = RunTraining(config).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "embed.weight [")) << status;
}

// Resuming before, at and after each change goes on with the same bits, also on other ranks.
TEST(UnifiedTrain, ResumesAcrossEveryChange) {
  TrainConfig config = UnifiedTest("unified_resume");
  ExpectResumesAt(config, {1, 3, 4, 5, 8, 9, 10, 11, 12});
}

// The banks move in every step (the head is not zero at the start), all else in odd ones.
TEST(UnifiedTrain, UO_27_AdamUpdatesInOddStepsOnly) {
  TrainConfig config = UnifiedTest("unified_odd");
  config.out_dir = fs::path(config.metrics).parent_path() / "out";
  config.checkpoint_every = 1;
  config.save_init = fs::path(config.metrics).parent_path() / "init.safetensors";
  ASSERT_TRUE(RunTraining(config).status.ok());
  TensorMap before = ReadSafetensors(config.save_init)->tensors;
  for (int64_t step = 0; step < kSteps; ++step) {
    const TensorMap after = Load(config, step + 1).model.tensors;
    for (const auto& [name, tensor] : before) {
      const bool bank = name == "attn_bank" || name == "mlp_bank";
      if (bank) {
        EXPECT_FALSE(tensor == after.at(name)) << name << ", step " << step;
      } else if (step % 2 == 0) {
        EXPECT_TRUE(tensor == after.at(name)) << name << ", step " << step;
      } else if (name == "lm_head.weight" || name == "embed.weight" || name == "scalars") {
        EXPECT_FALSE(tensor == after.at(name)) << name << ", step " << step;
      }
    }
    before = after;
  }
}

}  // namespace
}  // namespace tools
