#include "tools/tokenize/shard_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "data/shard.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<uint16_t>;
using Strings = std::vector<std::string>;

std::string Dir(const std::string& name) {
  const std::string dir = testing::TempDir() + "/shard_set_" + name;
  fs::remove_all(dir);
  return dir;
}

Strings Names(const std::string& dir) {
  Strings names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Tokens Read(const std::string& path) {
  const absl::StatusOr<data::Shard> shard = data::Shard::Open(path);
  EXPECT_TRUE(shard.ok()) << shard.status();
  return shard.ok() ? Tokens(shard->tokens().begin(), shard->tokens().end()) : Tokens();
}

absl::Status Write(const ShardSetOptions& options, const std::vector<Tokens>& pieces,
                   Strings* removed = nullptr) {
  absl::StatusOr<ShardSet> set = ShardSet::Create(options);
  if (!set.ok()) return set.status();
  for (const Tokens& piece : pieces) {
    const absl::Status status = set->Append(piece);
    if (!status.ok()) return status;
  }
  const absl::Status status = set->Publish();
  if (removed != nullptr) *removed = set->removed();
  return status;
}

TEST(ShardSet, FirstValidationThenTraining) {
  const std::string dir = Dir("cut") + "/deeper";
  const ShardSetOptions options = {.out_dir = dir, .shard_tokens = 4, .val_tokens = 3};
  ASSERT_TRUE(Write(options, {{1, 2}, {3, 4, 5, 6, 7, 8, 9, 10, 11}, {}, {12}}).ok());
  EXPECT_EQ(Names(dir), (Strings{"tokens_train_000001.bin", "tokens_train_000002.bin",
                                 "tokens_train_000003.bin", "tokens_val_000000.bin"}));
  EXPECT_EQ(Read(dir + "/tokens_val_000000.bin"), (Tokens{1, 2, 3}));
  EXPECT_EQ(Read(dir + "/tokens_train_000001.bin"), (Tokens{4, 5, 6, 7}));
  EXPECT_EQ(Read(dir + "/tokens_train_000002.bin"), (Tokens{8, 9, 10, 11}));
  EXPECT_EQ(Read(dir + "/tokens_train_000003.bin"), (Tokens{12}));
}

TEST(ShardSet, WithoutValidation) {
  const std::string dir = Dir("no_val");
  const ShardSetOptions options = {
      .out_dir = dir, .prefix = "x", .shard_tokens = 4, .val_tokens = 0};
  ASSERT_TRUE(Write(options, {{1, 2, 3, 4}}).ok());
  EXPECT_EQ(Names(dir), (Strings{"x_train_000001.bin"}));  // and no empty second one
}

TEST(ShardSet, NothingAppearsBeforePublish) {
  const std::string dir = Dir("unpublished");
  {
    absl::StatusOr<ShardSet> set =
        ShardSet::Create({.out_dir = dir, .shard_tokens = 2, .val_tokens = 2});
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_TRUE(set->Append({1, 2, 3, 4, 5}).ok());
    for (const std::string& name : Names(dir)) {
      EXPECT_NE(name.find(".bin.tmp."), std::string::npos) << name;
    }
  }
  EXPECT_TRUE(fs::is_empty(dir));
}

TEST(ShardSet, AllInValidationIsRefused) {
  const std::string dir = Dir("all_val");
  const absl::Status status = Write({.out_dir = dir, .val_tokens = 100}, {Tokens(100, 7)});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("all 100 tokens fit into the validation shard"),
            std::string::npos)
      << status;
  EXPECT_NE(status.message().find("give --val_tokens=10 "), std::string::npos) << status;
  EXPECT_TRUE(fs::is_empty(dir));
  EXPECT_FALSE(Write({.out_dir = dir}, {}).ok());
  EXPECT_TRUE(fs::is_empty(dir));
}

TEST(ShardSet, ReplacesOnlyWhenTold) {
  const std::string dir = Dir("overwrite");
  ShardSetOptions options = {.out_dir = dir, .shard_tokens = 1, .val_tokens = 1};
  ASSERT_TRUE(Write(options, {{1, 2, 3, 4}}).ok());
  // Names that are near and of no set of this prefix.
  const Strings others = {"tokens_train_1.bin", "tokens_train_000001.bin.old",
                          "tokens_test_000001.bin", "tokens_val_0000a0.bin",
                          "tokens2_train_000009.bin"};
  for (const std::string& name : others) std::ofstream(dir + "/" + name) << "x";

  const absl::Status status = Write(options, {{5, 6}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("tokens_train_000001.bin and 3 more exist already"),
            std::string::npos)
      << status;
  EXPECT_EQ(Read(dir + "/tokens_val_000000.bin"), (Tokens{1}));

  options.overwrite = true;
  Strings removed;
  ASSERT_TRUE(Write(options, {{5, 6}}, &removed).ok());
  EXPECT_EQ(removed, (Strings{dir + "/tokens_train_000002.bin", dir + "/tokens_train_000003.bin"}));
  EXPECT_EQ(Read(dir + "/tokens_val_000000.bin"), (Tokens{5}));
  EXPECT_EQ(Read(dir + "/tokens_train_000001.bin"), (Tokens{6}));
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(dir + "/" + name)) << name;

  options = {.out_dir = dir, .prefix = "other", .shard_tokens = 1, .val_tokens = 1};
  EXPECT_TRUE(Write(options, {{5, 6}}).ok());
}

TEST(ShardSet, BadOptions) {
  const std::string dir = Dir("bad");
  const auto error = [](const ShardSetOptions& options) {
    return std::string(ShardSet::Create(options).status().message());
  };
  EXPECT_NE(error({.out_dir = dir, .shard_tokens = 0}).find("--shard_tokens=0: must be from 1"),
            std::string::npos);
  EXPECT_NE(error({.out_dir = dir, .shard_tokens = int64_t{1} << 31}).find("to 2147483647"),
            std::string::npos);
  EXPECT_NE(error({.out_dir = dir, .val_tokens = -2}).find("--val_tokens=-2"), std::string::npos);
  EXPECT_NE(error({.out_dir = dir, .prefix = "a/b"}).find("--prefix=a/b"), std::string::npos);
  EXPECT_NE(error({.out_dir = dir, .prefix = ""}).find("--prefix="), std::string::npos);
  EXPECT_NE(error({.out_dir = "/dev/null/x"}).find("--out_dir=/dev/null/x"), std::string::npos);
}

}  // namespace
}  // namespace tools
