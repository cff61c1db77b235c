#include "tools/fetch_fineweb/verify.h"

#include <fstream>
#include <string>
#include <vector>

#include "data/shard.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

std::string ShardOf(const std::vector<uint16_t>& tokens) {
  const std::string path = testing::TempDir() + "/shard.bin";
  EXPECT_TRUE(data::WriteShard(path, tokens).ok());
  return path;
}

void ExpectDataLoss(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
}

TEST(VerifyContents, Shards) {
  EXPECT_EQ(*VerifyContents(ShardOf({50256, 0, 50255}), FileKind::kShard), "3 tokens");
  // The tail of a document that began in the shard before.
  EXPECT_EQ(*VerifyContents(ShardOf({1, 2, 50256}), FileKind::kShard), "3 tokens");
  ExpectDataLoss(VerifyContents(ShardOf({50256, 50257}), FileKind::kShard).status(),
                 "token 50257 at position 1 is outside the vocabulary of 50257 ids");
  ExpectDataLoss(VerifyContents(ShardOf({1, 2}), FileKind::kShard).status(),
                 "none of its 2 tokens is end-of-text (50256)");
  EXPECT_EQ(VerifyContents(testing::TempDir() + "/none", FileKind::kShard).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(VerifyContents(testing::TempDir(), FileKind::kShard).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(VerifyContents, Merges) {
  const std::string path = "data/bpe/testdata/merges.txt";  // the first 2,000
  ExpectDataLoss(VerifyContents(path, FileKind::kMerges).status(),
                 "has 2000 merges, where GPT-2 has 50000");
  const std::string page = testing::TempDir() + "/page";
  std::ofstream(page) << "<html>\n<p>\n";
  ExpectDataLoss(VerifyContents(page, FileKind::kMerges).status(), page);
  EXPECT_EQ(VerifyContents(testing::TempDir() + "/none", FileKind::kMerges).status().code(),
            absl::StatusCode::kNotFound);
}

// FIPS 180-2, appendix B.1 and B.3.
TEST(Sha256OfFile, PublishedSums) {
  const std::string path = testing::TempDir() + "/summed";
  std::ofstream(path) << "abc";
  EXPECT_EQ(*Sha256OfFile(path),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::ofstream(path) << std::string(1'000'000, 'a');
  EXPECT_EQ(*Sha256OfFile(path),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_FALSE(Sha256OfFile(path + ".none").ok());
}

TEST(VerifySha256, NamesBothSums) {
  const std::string path = testing::TempDir() + "/summed";
  std::ofstream(path) << "abc";
  EXPECT_TRUE(
      VerifySha256(path, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").ok());
  ExpectDataLoss(VerifySha256(path, "00"),
                 path +
                     ": its SHA-256 is ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61"
                     "f20015ad, not 00");
}

}  // namespace
}  // namespace tools
