#include "data/validation.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {
namespace {

std::string Write(const std::string& name, const std::vector<uint16_t>& tokens) {
  const std::string path = ::testing::TempDir() + "/validation_test_" + name + ".bin";
  EXPECT_TRUE(WriteShard(path, tokens).ok());
  return path;
}

// BOS at every multiple of `every`, other positions modulo 50000.
std::vector<uint16_t> Tokens(int64_t size, int64_t every) {
  std::vector<uint16_t> tokens(size);
  for (int64_t t = 0; t < size; ++t) {
    tokens[t] = t % every == 0 ? kGpt2Bos : static_cast<uint16_t>(t % 50000);
  }
  return tokens;
}

void ExpectRefused(const absl::StatusOr<ValidationStream>& stream, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  EXPECT_EQ(stream.status().code(), code) << stream.status();
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(stream.status().message(), part))
        << part << " in " << stream.status();
  }
}

TEST(Validation, T1_18_Slots) {
  constexpr int64_t kTokens = 262'144;
  const std::vector<uint16_t> tokens = Tokens(40 * kTokens + 1, 1000);
  const auto stream = ValidationStream::Create({Write("full", tokens)}, 40, kTokens, 0, TokenMap());
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(stream->slots(), 40);
  EXPECT_EQ(stream->max_documents(), 896);  // T1-16
  for (const int j : {0, 1, 39}) {
    const SlotBatch slot = stream->Slot(j);
    const auto begin = tokens.begin() + j * kTokens;
    EXPECT_EQ(slot.inputs, std::vector<int32_t>(begin, begin + kTokens));
    EXPECT_EQ(slot.targets, std::vector<int32_t>(begin + 1, begin + 1 + kTokens));
    EXPECT_EQ(slot.boundaries.size(), 896u);
  }
}

TEST(Validation, Boundaries) {
  // BOS at 0, 4, 8, ...: slot 0 begins with a document of length 0, slot 1 with a tail of two.
  const auto stream =
      ValidationStream::Create({Write("small", Tokens(31, 4))}, 3, 10, 8, TokenMap());
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(stream->Slot(0).boundaries, (std::vector<int32_t>{0, 0, 4, 8, 10, 10, 10, 10}));
  EXPECT_EQ(stream->Slot(1).boundaries, (std::vector<int32_t>{0, 2, 6, 10, 10, 10, 10, 10}));
}

TEST(Validation, RefusesTooFewTokens) {
  const std::string path = Write("short", Tokens(30, 4));
  ExpectRefused(ValidationStream::Create({path}, 3, 10, 8, TokenMap()),
                absl::StatusCode::kOutOfRange, {path, "needs 31 tokens", "holds 30"});
  ExpectRefused(ValidationStream::Create({path, path}, 3, 10, 8, TokenMap()),
                absl::StatusCode::kOutOfRange, {"only the first validation file"});
  ExpectRefused(ValidationStream::Create({}, 3, 10, 8, TokenMap()),
                absl::StatusCode::kInvalidArgument, {"no validation file"});
}

TEST(Validation, RefusesTooManyDocuments) {
  // BOS at 0, 4, 8 and the empty tail: 4 documents, which a table of 5 holds.
  const std::string path = Write("many", Tokens(31, 4));
  EXPECT_TRUE(ValidationStream::Create({path}, 3, 10, 5, TokenMap()).ok());
  ExpectRefused(ValidationStream::Create({path}, 3, 10, 4, TokenMap()),
                absl::StatusCode::kInvalidArgument, {path, "slot 0", "4 documents", "at most 3"});
}

TEST(Validation, D12_RefusesTokens) {
  std::vector<uint16_t> tokens = Tokens(40, 4);
  tokens[30] = 60000;  // the last target
  ExpectRefused(ValidationStream::Create({Write("token", tokens)}, 3, 10, 8, TokenMap()),
                absl::StatusCode::kDataLoss, {"60000", "position 30"});
}

}  // namespace
}  // namespace data
