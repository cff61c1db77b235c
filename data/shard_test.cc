#include "data/shard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "data/shard_writer.h"
#include "gtest/gtest.h"

namespace data {
namespace {

namespace fs = std::filesystem;

std::string Dir(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/shard_test_" + name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

// A file written from the format's definition, not by WriteShard.
void WriteRaw(const std::string& path, std::vector<int32_t> head, int64_t payload_bytes) {
  head.resize(256);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(head.data()), 1024);
  for (int64_t i = 0; i < payload_bytes; ++i) out.put(static_cast<char>(i));
}

void ExpectRefused(const std::string& path, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  const absl::Status status = Shard::Open(path).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
}

TEST(Shard, T1_14_T2_05_Header) {
  const std::string path = Dir("header") + "/a.bin";
  WriteRaw(path, {20240520, 1, 3}, 6);
  const absl::StatusOr<Shard> shard = Shard::Open(path);
  ASSERT_TRUE(shard.ok()) << shard.status();
  // Bytes 0 1 2 3 4 5, little-endian.
  EXPECT_EQ(shard->tokens(), (std::vector<uint16_t>{0x0100, 0x0302, 0x0504}));
  EXPECT_EQ(shard->path(), path);
}

TEST(Shard, WritesWhatItReads) {
  const std::string dir = Dir("write");
  const std::vector<uint16_t> tokens = {50256, 7, 65535, 0};
  ASSERT_TRUE(WriteShard(dir + "/a.bin", {1, 2}).ok());
  ASSERT_TRUE(WriteShard(dir + "/a.bin", tokens).ok());
  EXPECT_EQ(fs::file_size(dir + "/a.bin"), 1024 + 2 * tokens.size());
  absl::StatusOr<Shard> shard = Shard::Open(dir + "/a.bin");
  ASSERT_TRUE(shard.ok()) << shard.status();
  const Shard moved = *std::move(shard);
  EXPECT_EQ(moved.tokens(), tokens);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 1) << "a temporary file was left";
  EXPECT_FALSE(WriteShard(dir + "/b.bin", {}).ok());
  EXPECT_FALSE(WriteShard(dir + "/none/b.bin", tokens).ok());
}

TEST(Shard, D1_D10_D11_T2_05_RefusesBadFiles) {
  const std::string path = Dir("bad") + "/a.bin";
  const auto data_loss = absl::StatusCode::kDataLoss;
  WriteRaw(path, {20240521, 1, 3}, 6);
  ExpectRefused(path, data_loss, {"20240521", "20240520"});
  WriteRaw(path, {20240520, 2, 3}, 6);
  ExpectRefused(path, data_loss, {"version is 2"});
  WriteRaw(path, {20240520, 1, 3}, 5);  // cut short
  ExpectRefused(path, data_loss, {"3 tokens (6 bytes)", "holds 5 bytes"});
  WriteRaw(path, {20240520, 1, 3}, 8);
  ExpectRefused(path, data_loss, {"3 tokens (6 bytes)", "holds 8 bytes"});
  WriteRaw(path, {20240520, 1, -3}, 6);
  ExpectRefused(path, data_loss, {"-3 tokens", "holds 6 bytes"});
  WriteRaw(path, {20240520, 1, 0}, 0);
  ExpectRefused(path, data_loss, {"0 tokens"});
  std::ofstream(path, std::ios::trunc).close();
  ExpectRefused(path, data_loss, {"holds 0 bytes", "1024"});
  fs::remove(path);
  ExpectRefused(path, absl::StatusCode::kNotFound, {"No such file"});
  fs::create_directory(path);
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, {"directory"});
}

TEST(Shard, D13_ABigEndianShardIsNamedAsSuch) {
  const std::string path = Dir("big_endian") + "/a.bin";
  WriteRaw(path, {static_cast<int32_t>(0x88D83401), 1 << 24, 3 << 24}, 6);  // 20240520's bytes
  ExpectRefused(path, absl::StatusCode::kDataLoss,
                {"big-endian byte order", "20240520", "write it again", "'<i4'", "'<u2'"});
  EXPECT_FALSE(absl::StrContains(Shard::Open(path).status().message(), "fetch it"));
}

TEST(Shard, RefusesAFifoWithoutWaiting) {
  const std::string path = Dir("fifo") + "/a.bin";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, {"is not a file"});
}

// A header is accepted exactly if magic, version and count all fit. The seed is fixed.
TEST(Shard, RandomHeaders) {
  const std::string path = Dir("random") + "/a.bin";
  std::mt19937 random(1);
  const auto mostly = [&random](int32_t right, const std::vector<int32_t>& wrong) {
    if (random() % 4 != 0) return right;
    const size_t index = random() % (wrong.size() + 1);
    return index < wrong.size() ? wrong[index] : static_cast<int32_t>(random());
  };
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    const int32_t payload = static_cast<int32_t>(random() % 10);  // bytes, odd ones too
    const int32_t count = payload / 2;
    const int32_t wrapping = count + INT32_MIN;  // its double is right in 32 bits
    const std::vector<int32_t> header = {
        mostly(20240520, {20240521, 0}), mostly(1, {0, 2, -1}),
        mostly(count, {count + 1, payload, wrapping, -1, INT32_MAX, INT32_MIN})};
    WriteRaw(path, header, payload);
    const absl::StatusOr<Shard> shard = Shard::Open(path);
    const bool good =
        header[0] == 20240520 && header[1] == 1 && payload > 0 && int64_t{2} * header[2] == payload;
    ASSERT_EQ(shard.ok(), good) << header[0] << " " << header[1] << " " << header[2] << " with "
                                << payload << " bytes: " << shard.status();
    if (!good) {
      ExpectRefused(path, absl::StatusCode::kDataLoss, {});
      continue;
    }
    ++accepted;
    EXPECT_EQ(static_cast<int64_t>(shard->tokens().size()), header[2]);
  }
  // (3/4)^3 of the 4 in 10 payloads that are whole tokens: 67 expected.
  EXPECT_GT(accepted, 40);
}

void ExpectListRefused(const std::string& globs, absl::StatusCode code, const std::string& part) {
  const absl::Status status = ListShards(globs).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
}

TEST(ListShards, SortedOnceEachThroughLinks) {
  const std::string dir = Dir("list");
  for (const char* name : {"/b_2.bin", "/b_1.bin", "/a.bin"}) {
    ASSERT_TRUE(WriteShard(dir + name, {1}).ok());
  }
  fs::create_directory_symlink(dir, dir + "/folder");
  fs::create_symlink("a.bin", dir + "/link.bin");
  const auto list = ListShards(dir + "/b_*.bin," + dir + "/a.bin," + dir + "/b_1*");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(*list, (std::vector<std::string>{dir + "/a.bin", dir + "/b_1.bin", dir + "/b_2.bin"}));
  const auto linked = ListShards(dir + "/folder/l*.bin");
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(*linked, std::vector<std::string>{dir + "/folder/link.bin"});
}

TEST(ListShards, K2_20_APathThatExistsIsMeant) {
  const std::string dir = Dir("list [odd], or not");
  for (const char* name : {"/a,b.bin", "/[x].bin", "/x.bin"}) {
    ASSERT_TRUE(WriteShard(dir + name, {1}).ok());
  }
  const auto odd = ListShards(dir + "/[x].bin," + dir + "/a,b.bin");
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_EQ(*odd, (std::vector<std::string>{dir + "/[x].bin", dir + "/a,b.bin"}));
  // As $DATA_PATH may be.
  const auto all = ListShardsIn(dir, "*.bin");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), 3);
}

TEST(ListShards, D4_DistinctMessages) {
  const std::string dir = Dir("list_bad");
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectListRefused(dir + "/x*.bin", absl::StatusCode::kNotFound, "x*.bin: matches no file");
  ExpectListRefused(dir + "/none/x*.bin", absl::StatusCode::kNotFound, "matches no file");
  ExpectListRefused("", invalid, "empty name");
  fs::create_directory(dir + "/d.bin");
  ExpectListRefused(dir + "/d*", invalid, "d.bin: is a directory");
  fs::create_symlink("gone.bin", dir + "/l.bin");
  ExpectListRefused(dir + "/l.bin", invalid, "dangling link, its target gone.bin");
  ExpectListRefused(dir + "/l*", invalid, "dangling link");
  // A folder that not even root can read: a link to itself.
  fs::create_symlink("loop", dir + "/loop");
  ExpectListRefused(dir + "/loop/*.bin", invalid, "loop: cannot read this folder");
  if (geteuid() != 0) {
    fs::create_directory(dir + "/closed");
    fs::permissions(dir + "/closed", fs::perms::none);
    ExpectListRefused(dir + "/closed/*.bin", invalid, "Permission denied");
    fs::permissions(dir + "/closed", fs::perms::owner_all);
  }
}

TEST(ShardWriter, PiecesBecomeOneShardWhenPublished) {
  const std::string dir = Dir("writer"), path = dir + "/a.bin";
  ASSERT_TRUE(WriteShard(path, {9}).ok());
  {
    const absl::StatusOr<std::unique_ptr<ShardWriter>> writer = ShardWriter::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append({50256, 7}).ok());
    EXPECT_TRUE((*writer)->Append({}).ok());
    EXPECT_TRUE((*writer)->Append({8}).ok());
    EXPECT_EQ((*writer)->tokens(), 3);
    EXPECT_TRUE((*writer)->Close().ok());
    EXPECT_EQ(Shard::Open(path)->tokens(), (std::vector<uint16_t>{9}));  // not yet
    EXPECT_TRUE((*writer)->Publish().ok());
  }
  EXPECT_EQ(Shard::Open(path)->tokens(), (std::vector<uint16_t>{50256, 7, 8}));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 1);
}

TEST(ShardWriter, UnpublishedLeavesNothing) {
  const std::string dir = Dir("unpublished");
  for (const bool close : {false, true}) {
    const absl::StatusOr<std::unique_ptr<ShardWriter>> writer = ShardWriter::Create(dir + "/a.bin");
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append({1}).ok());
    if (close) {
      EXPECT_TRUE((*writer)->Close().ok());
    }
  }
  EXPECT_TRUE(fs::is_empty(dir));
}

TEST(ShardWriter, RefusesNoTokensAndNoFolder) {
  const std::string dir = Dir("no_tokens");
  const absl::StatusOr<std::unique_ptr<ShardWriter>> writer = ShardWriter::Create(dir + "/a.bin");
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(absl::StrContains((*writer)->Close().message(), "not 0"));
  const absl::Status status = ShardWriter::Create(dir + "/none/a.bin").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "none/a.bin")) << status;
}

}  // namespace
}  // namespace data
