#include "tools/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/checkpoint/files.h"

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

// Nothing old is in the way in these tests.
absl::Status Save(const std::string& root, const Checkpoint& checkpoint, int keep) {
  std::string warning;
  const absl::Status status = SaveCheckpoint(root, checkpoint, keep, &warning);
  EXPECT_EQ(warning, "");
  return status;
}

std::string FreshRoot(const std::string& name) {
  const std::string root = testing::TempDir() + "/" + name;
  fs::remove_all(root);
  return root;
}

TEST(Checkpoint, LatestIsTheHighestStep) {
  const std::string root = FreshRoot("latest");
  for (int64_t step : {5, 100, 20}) ASSERT_TRUE(Save(root, Example(step), 3).ok());
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
    ASSERT_TRUE(Save(root, Example(step), 2).ok());
  }
  EXPECT_FALSE(fs::exists(root + "/step-00000004"));
  EXPECT_TRUE(fs::exists(root + "/step-00000005"));
  EXPECT_TRUE(fs::exists(root + "/step-00000006"));
}

TEST(Checkpoint, NothingButCheckpointsIsDeleted) {
  const std::string root = FreshRoot("others");
  for (const char* mine : {"/step-by-step", "/step-1", "/step-00000001.keep", "/step--0000001"}) {
    fs::create_directories(root + mine);
  }
  std::ofstream(root + "/notes.txt") << "mine";
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(Save(root, Example(step), 1).ok());
  }
  for (const char* mine : {"/step-by-step", "/step-1", "/step-00000001.keep", "/step--0000001"}) {
    EXPECT_TRUE(fs::exists(root + mine)) << mine;
  }
  EXPECT_TRUE(fs::exists(root + "/notes.txt"));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const std::string root = FreshRoot("again");
  ASSERT_TRUE(Save(root, Example(7), 2).ok());
  Checkpoint changed = Example(7);
  changed.state_json = "{}";
  ASSERT_TRUE(Save(root, changed, 2).ok());
  EXPECT_EQ(LoadLatestCheckpoint(root)->state_json, "{}");
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
}

TEST(Checkpoint, X2_WhatAKillLeftIsIgnoredAndRemoved) {
  const std::string root = FreshRoot("kill");
  ASSERT_TRUE(Save(root, Example(3), 2).ok());
  fs::create_directories(root + "/.tmp-step-00000009");
  std::ofstream(root + "/.tmp-step-00000009/model.safetensors") << "half";
  EXPECT_EQ(LoadLatestCheckpoint(root)->step, 3);
  ASSERT_TRUE(Save(root, Example(4), 2).ok());
  EXPECT_FALSE(fs::exists(root + "/.tmp-step-00000009"));
}

// As after a run that began afresh in the folder of a longer one.
TEST(Checkpoint, X4_TheNewOneStaysThoughItsStepIsTheLowest) {
  const std::string root = FreshRoot("lowest");
  for (int64_t step : {10, 20, 30, 5}) ASSERT_TRUE(Save(root, Example(step), 3).ok());
  EXPECT_TRUE(fs::exists(root + "/step-00000005"));
  EXPECT_FALSE(fs::exists(root + "/step-00000010"));
  EXPECT_TRUE(fs::exists(root + "/step-00000030"));
}

// A kill between the two renames of a step that is saved again.
TEST(Checkpoint, X2_TheReplacedCheckpointCountsUntilTheNewOneIsThere) {
  const std::string root = FreshRoot("replaced");
  ASSERT_TRUE(Save(root, Example(7), 1).ok());
  fs::rename(root + "/step-00000007", root + "/.old-step-00000007");
  fs::create_directories(root + "/.tmp-step-00000007");
  const absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(root);
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->model.tensors, Example(7).model.tensors);
  ASSERT_TRUE(Save(root, Example(8), 2).ok());
  EXPECT_TRUE(LoadCheckpoint(root + "/step-00000007").ok());
  EXPECT_FALSE(fs::exists(root + "/.tmp-step-00000007"));
}

void ExpectDamage(const std::string& root, const std::string& file,
                  const std::vector<std::string>& parts) {
  const absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(root);
  ASSERT_FALSE(latest.ok()) << file;
  EXPECT_EQ(latest.status().code(), absl::StatusCode::kDataLoss) << latest.status();
  for (const std::string& part : parts) {
    EXPECT_NE(latest.status().message().find(part), absl::string_view::npos)
        << "no \"" << part << "\" in " << latest.status();
  }
}

const char* const kFiles[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                              "checksums.json"};

TEST(Checkpoint, X5_AFlippedBitInAnyByteIsFound) {
  const std::string root = FreshRoot("flipped");
  for (int64_t step : {1, 2}) ASSERT_TRUE(Save(root, Example(step), 2).ok());
  for (const char* file : kFiles) {
    const std::string path = root + "/step-00000002/" + file;
    const std::string whole = *ReadFile(path);
    for (size_t bit = 0; bit < 8 * whole.size(); bit += 9) {  // every byte, another of its bits
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      std::ofstream(path) << changed;
      const absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(root);
      // White space and the case of hexadecimal digits mean nothing in checksums.json.
      if (latest.ok() && file == std::string("checksums.json")) {
        EXPECT_EQ(latest->state_json, Example(2).state_json);
        continue;
      }
      ASSERT_FALSE(latest.ok()) << file << ", bit " << bit;
      EXPECT_NE(latest.status().message().find("step-00000001 is whole"), absl::string_view::npos)
          << latest.status();
    }
    std::ofstream(path) << whole;
  }
  EXPECT_EQ(LoadLatestCheckpoint(root)->step, 2);
}

TEST(Checkpoint, X5_TruncatedLongerAndMissingFilesAreNamed) {
  const std::string root = FreshRoot("truncated");
  for (int64_t step : {1, 2}) ASSERT_TRUE(Save(root, Example(step), 2).ok());
  for (const char* file : kFiles) {
    const std::string path = root + "/step-00000002/" + file;
    const std::string whole = *ReadFile(path);
    for (size_t size = 0; size < whole.size(); ++size) {
      std::ofstream(path) << whole.substr(0, size);
      if (file == std::string("checksums.json") && size + 1 == whole.size()) continue;  // its \n
      ExpectDamage(root, file, {path, "step-00000001 is whole: to go on from step 1, move"});
    }
    std::ofstream(path) << whole << "x";
    ExpectDamage(root, file, {path});
    fs::remove(path);
    ExpectDamage(root, file, {path, "no such file", "step-00000001 is whole"});
    std::ofstream(path) << whole;
  }
}

TEST(Checkpoint, X5_BothValuesAreTold) {
  const std::string root = FreshRoot("values");
  ASSERT_TRUE(Save(root, Example(2), 1).ok());
  const std::string path = root + "/step-00000002/state.json";
  std::ofstream(path) << "{\"step\":3}";
  ExpectDamage(root, "state.json",
               {path, "its CRC-32C is ", ", that of what was saved ", "no other checkpoint in"});
  std::ofstream(path) << "{\"step\":22}";
  ExpectDamage(root, "state.json", {path, "holds 11 bytes, 10 were saved"});
}

TEST(Checkpoint, ErrorsNameThePath) {
  EXPECT_EQ(LoadLatestCheckpoint(FreshRoot("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadCheckpoint(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string file = FreshRoot("a_file");
  std::ofstream(file) << "x";
  const absl::Status status = Save(file + "/inside", Example(1), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find(file), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tools
