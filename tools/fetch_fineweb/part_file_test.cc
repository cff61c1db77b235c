#include "tools/fetch_fineweb/part_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

class PartFileTest : public testing::Test {
 protected:
  PartFileTest() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/" + info->name() + "/new/file";
  }

  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Leaves "abcd" of `version`.
  void Leave(const FileVersion& version) {
    absl::StatusOr<PartFile> part = PartFile::Open(path_, version);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_TRUE(part->Restart(version.etag).ok());
    ASSERT_TRUE(part->Append("ab").ok());
    ASSERT_TRUE(part->Append("cd").ok());
    EXPECT_EQ(part->size(), 4);
  }

  // Opens it for `wanted` and returns how many bytes are kept.
  int64_t Kept(const FileVersion& wanted) {
    const absl::StatusOr<PartFile> part = PartFile::Open(path_, wanted);
    EXPECT_TRUE(part.ok()) << part.status();
    if (!part.ok()) return -1;
    EXPECT_EQ(part->emptied_because().empty(), part->size() > 0);
    EXPECT_EQ(part->size(), static_cast<int64_t>(fs::file_size(path_ + ".part")));
    return part->size();
  }

  std::string path_;
};

TEST_F(PartFileTest, PublishesInOneStepInPlaceOfWhatIsThere) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_) << "old";
  absl::StatusOr<PartFile> part = PartFile::Open(path_, {.size = 4});
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_TRUE(part->Restart("").ok());
  ASSERT_TRUE(part->Append("abcd").ok());
  EXPECT_EQ(Read(path_), "old");
  ASSERT_TRUE(part->Publish().ok());
  EXPECT_EQ(Read(path_), "abcd");
  EXPECT_FALSE(fs::exists(path_ + ".part"));
  EXPECT_FALSE(fs::exists(path_ + ".part.json"));
}

TEST_F(PartFileTest, GoesOnWhereItWasLeft) {
  const FileVersion version = {.size = 9, .sha256 = "ff", .etag = "\"e\\\""};
  Leave(version);
  absl::StatusOr<PartFile> part = PartFile::Open(path_, {.size = 9, .sha256 = "ff"});
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->size(), 4);
  EXPECT_EQ(part->version().etag, version.etag);
  ASSERT_TRUE(part->Append("e").ok());
  EXPECT_EQ(Read(path_ + ".part"), "abcde");
}

TEST_F(PartFileTest, KeepsOnlyBytesOfTheSameVersion) {
  const FileVersion summed = {.size = 9, .sha256 = "ff", .etag = ""};
  Leave(summed);
  EXPECT_EQ(Kept(summed), 4);
  EXPECT_EQ(Kept({.size = 9, .sha256 = "ee"}), 0);
  Leave(summed);
  EXPECT_EQ(Kept({.size = 8, .sha256 = "ff"}), 0);
  Leave(summed);
  EXPECT_EQ(Kept({.size = 9}), 0);
  Leave({.size = 9, .etag = "\"e\""});
  EXPECT_EQ(Kept({.size = 9}), 4);
  EXPECT_EQ(Kept({.size = 9, .sha256 = "ff"}), 0);
  Leave({.size = 9, .etag = "W/\"e\""});
  EXPECT_EQ(Kept({.size = 9}), 0);
  Leave({.size = 9, .etag = ""});
  EXPECT_EQ(Kept({.size = 9}), 0);
  Leave({.size = 3, .sha256 = "ff"});
  EXPECT_EQ(Kept({.size = 3, .sha256 = "ff"}), 0);  // 4 bytes
}

TEST_F(PartFileTest, RestartEmptiesAndRenames) {
  Leave({.size = 9, .etag = "\"old\""});
  absl::StatusOr<PartFile> part = PartFile::Open(path_, {.size = 9});
  ASSERT_TRUE(part.ok());
  ASSERT_TRUE(part->Restart("\"new\"").ok());
  ASSERT_TRUE(part->Append("x").ok());
  EXPECT_EQ(Read(path_ + ".part"), "x");
  EXPECT_NE(Read(path_ + ".part.json").find("new"), std::string::npos);
}

TEST_F(PartFileTest, AnEtagOfAnyBytes) {
  Leave({.size = 9, .sha256 = "ff", .etag = "\"\xff\xfe\""});
  EXPECT_EQ(Kept({.size = 9, .sha256 = "ff"}), 4);
}

TEST_F(PartFileTest, HeldByOneAtATime) {
  {
    const absl::StatusOr<PartFile> first = PartFile::Open(path_, {.size = 9});
    ASSERT_TRUE(first.ok());
    const absl::StatusOr<PartFile> second = PartFile::Open(path_, {.size = 9});
    EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(PartFile::Open(path_, {.size = 9}).ok());
}

TEST_F(PartFileTest, DiscardRemovesBoth) {
  Leave({.size = 9, .etag = "\"e\""});
  absl::StatusOr<PartFile> part = PartFile::Open(path_, {.size = 9});
  ASSERT_TRUE(part.ok());
  ASSERT_TRUE(part->Discard().ok());
  EXPECT_TRUE(fs::is_empty(fs::path(path_).parent_path()));
}

TEST_F(PartFileTest, AFullDisk) {
  fs::create_directories(fs::path(path_).parent_path());
  fs::create_symlink("/dev/full", path_ + ".part");
  absl::StatusOr<PartFile> part = PartFile::Open(path_, {.size = 9});
  ASSERT_TRUE(part.ok()) << part.status();
  const absl::Status full = part->Append("x");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(full.message()).find(path_ + ".part: cannot write: No space"),
            std::string::npos)
      << full;
}

}  // namespace
}  // namespace tools
