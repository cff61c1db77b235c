#include "tools/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

Checkpoint Example(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.model.tensors["w"] = {
      kernels::DType::kF32, {1}, std::string(4, char('a' + step % 26))};
  checkpoint.optimizer.tensors["m"] = {kernels::DType::kBF16, {2}, "wxyz"};
  checkpoint.state_json = "{\"step\":" + std::to_string(step) + "}";
  return checkpoint;
}

std::string FreshRoot(const std::string& name) {
  const std::string root = testing::TempDir() + "/" + name;
  fs::remove_all(root);
  return root;
}

TEST(Checkpoint, LatestIsTheHighestStep) {
  const std::string root = FreshRoot("latest");
  for (int64_t step : {5, 100, 20}) ASSERT_TRUE(SaveCheckpoint(root, Example(step), 3).ok());
  const absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(root);
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->step, 100);
  EXPECT_EQ(latest->model.tensors, Example(100).model.tensors);
  EXPECT_EQ(latest->optimizer.tensors, Example(100).optimizer.tensors);
  EXPECT_EQ(latest->state_json, "{\"step\":100}");
}

TEST(Checkpoint, X4_KeepsTheNewest) {
  const std::string root = FreshRoot("keep");
  for (int64_t step = 1; step <= 6; ++step) {
    ASSERT_TRUE(SaveCheckpoint(root, Example(step), 2).ok());
  }
  EXPECT_FALSE(fs::exists(root + "/step-00000004"));
  EXPECT_TRUE(fs::exists(root + "/step-00000005"));
  EXPECT_TRUE(fs::exists(root + "/step-00000006"));
}

TEST(Checkpoint, NothingButCheckpointsIsDeleted) {
  const std::string root = FreshRoot("others");
  fs::create_directories(root + "/step-by-step");
  std::ofstream(root + "/notes.txt") << "mine";
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(SaveCheckpoint(root, Example(step), 1).ok());
  }
  EXPECT_TRUE(fs::exists(root + "/step-by-step"));
  EXPECT_TRUE(fs::exists(root + "/notes.txt"));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const std::string root = FreshRoot("again");
  ASSERT_TRUE(SaveCheckpoint(root, Example(7), 2).ok());
  Checkpoint changed = Example(7);
  changed.state_json = "{}";
  ASSERT_TRUE(SaveCheckpoint(root, changed, 2).ok());
  EXPECT_EQ(LoadLatestCheckpoint(root)->state_json, "{}");
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
}

TEST(Checkpoint, X2_WhatAKillLeftIsIgnoredAndRemoved) {
  const std::string root = FreshRoot("kill");
  ASSERT_TRUE(SaveCheckpoint(root, Example(3), 2).ok());
  fs::create_directories(root + "/.tmp-step-00000009");
  std::ofstream(root + "/.tmp-step-00000009/model.safetensors") << "half";
  EXPECT_EQ(LoadLatestCheckpoint(root)->step, 3);
  ASSERT_TRUE(SaveCheckpoint(root, Example(4), 2).ok());
  EXPECT_FALSE(fs::exists(root + "/.tmp-step-00000009"));
}

TEST(Checkpoint, ErrorsNameThePath) {
  EXPECT_EQ(LoadLatestCheckpoint(FreshRoot("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadCheckpoint(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string file = FreshRoot("a_file");
  std::ofstream(file) << "x";
  const absl::Status status = SaveCheckpoint(file + "/inside", Example(1), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find(file), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tools
