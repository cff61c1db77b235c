#include "data/bpe/bpe.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Ids = std::vector<uint16_t>;

constexpr char kMerges[] = "data/bpe/testdata/merges.txt";
constexpr char kCases[] = "data/bpe/testdata/cases.txt";

Bpe LoadBegin() {
  absl::StatusOr<Bpe> bpe = Bpe::Load(kMerges);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return *std::move(bpe);
}

std::string WriteMerges(const std::string& contents) {
  const std::string path = testing::TempDir() + "/merges.txt";
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string LoadError(const std::string& contents) {
  return std::string(Bpe::Load(WriteMerges(contents)).status().message());
}

// Texts with what tiktoken makes of them with the same merges (make_fixture.py).
TEST(Bpe, SameTokensAsTiktoken) {
  const Bpe bpe = LoadBegin();
  EXPECT_EQ(bpe.merges(), 2000);
  std::ifstream file(kCases);
  std::string line;
  int cases = 0;
  for (; std::getline(file, line); ++cases) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 2u) << line;
    const std::string text = absl::HexStringToBytes(fields[0]);
    Ids expected;
    for (const absl::string_view number : absl::StrSplit(fields[1], ' ')) {
      int id = 0;
      ASSERT_TRUE(absl::SimpleAtoi(number, &id)) << line;
      expected.push_back(static_cast<uint16_t>(id));
    }
    EXPECT_EQ(bpe.Encode(text), expected) << text;
    const absl::StatusOr<std::string> decoded = bpe.Decode(expected);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text);
  }
  EXPECT_GT(cases, 40);
}

TEST(Bpe, AnyBytesComeBack) {
  const Bpe bpe = LoadBegin();
  uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 50; ++i) {
      state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
      text += static_cast<char>(state >> 24);
    }
    const absl::StatusOr<std::string> decoded = bpe.Decode(bpe.Encode(text));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text);
  }
  EXPECT_EQ(bpe.Encode(""), Ids{});
}

// Merging rescans nothing: quadratic time would take minutes here.
TEST(Bpe, LongPieceIsFast) {
  const Bpe bpe = LoadBegin();
  const std::string text(1 << 20, 'e');
  const absl::StatusOr<std::string> decoded = bpe.Decode(bpe.Encode(text));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, text);
}

TEST(Bpe, DecodeEndOfTextAndUnknownIds) {
  const Bpe bpe = LoadBegin();
  const absl::StatusOr<std::string> text = bpe.Decode(Ids{50256, 32});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "<|endoftext|>A");

  const absl::Status status = bpe.Decode(Ids{32, 2256}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("token 2256 at position 1"), std::string::npos) << status;
}

TEST(Bpe, BadFilesAreNamedWithTheirLine) {
  EXPECT_EQ(Bpe::Load("no/such/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(LoadError("a b\n").find("merges.txt:1: does not begin"), std::string::npos);
  EXPECT_NE(LoadError("").find("merges.txt:1: does not begin"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\n").find("has no merges"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\na b\nab\n").find(":3: not two words"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\na b c\n").find(":2: not two words"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\na bc\n").find(":2: \"bc\" is neither"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\na b\na b\n").find(":3: gives a token"), std::string::npos);
  // A tab, and a character beyond the 256 that stand for bytes.
  EXPECT_NE(LoadError("#version: 0.2\na \t\n").find("stands for no byte"), std::string::npos);
  EXPECT_NE(LoadError("#version: 0.2\na \u0144\n").find("stands for no byte"), std::string::npos);
}

}  // namespace
}  // namespace data
