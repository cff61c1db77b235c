#include "data/token_map.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {
namespace {

absl::Status Check(const TokenMap& map, const std::vector<uint16_t>& tokens, int64_t count) {
  const std::string path = ::testing::TempDir() + "/token_map_test.bin";
  EXPECT_TRUE(WriteShard(path, tokens).ok());
  const absl::StatusOr<Shard> shard = Shard::Open(path);
  EXPECT_TRUE(shard.ok()) << shard.status();
  return map.CheckTokens(*shard, count);
}

TEST(TokenMap, IdentityIsTheDefault) {
  const TokenMap map;
  EXPECT_TRUE(map.is_identity());
  EXPECT_EQ(map.vocab_size(), 50257);
  EXPECT_EQ(map.bos(), 50256);
  EXPECT_EQ(map.Map(0), 0);
  EXPECT_EQ(map.Map(50256), 50256);
  EXPECT_EQ(map.Unmap(50256), 50256);
  EXPECT_EQ(map.Unmap(-1), std::nullopt);
  EXPECT_EQ(map.Unmap(50304), std::nullopt);
}

TEST(TokenMap, D12_PaddedVocabulary) {
  const TokenMap map = TokenMap::Identity(50257);
  EXPECT_TRUE(Check(map, {50256, 50303}, 2).ok());
  const absl::Status status = Check(map, {50256, 1, 50304, 60000}, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  for (const char* part : {"token_map_test.bin: token 50304 at position 2", "50304 ids"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
  EXPECT_TRUE(Check(map, {50256, 1, 50304}, 2).ok()) << "the third is not looked at";
  EXPECT_FALSE(Check(TokenMap::Identity(50257, 50257), {50257}, 1).ok());
}

TEST(TokenMap, Bytes) {
  const TokenMap map = TokenMap::ByteVocabulary();
  EXPECT_FALSE(map.is_identity());
  EXPECT_EQ(map.vocab_size(), 257);
  EXPECT_EQ(map.bos(), 256);
  int mapped = 0;
  for (int token = 0; token <= UINT16_MAX; ++token) {
    const std::optional<int32_t> id = map.Map(static_cast<uint16_t>(token));
    if (!id) continue;
    ++mapped;
    EXPECT_EQ(map.Unmap(*id), token);
  }
  EXPECT_EQ(mapped, 257);
  EXPECT_EQ(map.Map(256), std::nullopt);
  EXPECT_EQ(map.Unmap(257), std::nullopt);
  const absl::Status status = Check(map, {50256, 255, 256}, 3);
  EXPECT_TRUE(absl::StrContains(status.message(), "token 256 at position 2")) << status;
}

}  // namespace
}  // namespace data
