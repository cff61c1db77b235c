#include "data/bpe/bpe.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "data/bpe/encoder.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Ids = std::vector<uint16_t>;

constexpr char kMerges[] = "data/bpe/testdata/merges.txt";
constexpr char kVocabulary[] = "data/bpe/testdata/vocab.bpe";

Bpe LoadBpe(const std::string& path) {
  absl::StatusOr<Bpe> bpe = Bpe::Load(path);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return *std::move(bpe);
}

std::string WriteFile(const std::string& name, const std::string& contents) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

// A text of make_fixture.py and its tokens as the fixture writes them.
struct Case {
  std::string text, column;
};

std::vector<Case> ReadCases(const std::string& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    int times = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &times)) {
      ADD_FAILURE() << path << ": " << line;
      break;
    }
    Case one = {"", fields[2]};
    for (; times > 0; --times) one.text += absl::HexStringToBytes(fields[0]);
    cases.push_back(std::move(one));
  }
  return cases;
}

std::string Column(const Ids& ids) {
  std::string column;
  for (size_t i = 0, end = 0; i < ids.size(); i = end) {
    while (end < ids.size() && ids[end] == ids[i]) ++end;
    absl::StrAppend(&column, i == 0 ? "" : " ", ids[i]);
    if (end - i > 1) absl::StrAppend(&column, "*", end - i);
  }
  if (column.size() < 3000) return column;
  uint64_t digest = 0xCBF29CE484222325;
  for (const uint16_t id : ids) digest = (digest ^ id) * 0x100000001B3;
  return absl::StrFormat("#%d %016x", ids.size(), digest);
}

// What tiktoken makes of texts with the same vocabulary. All of them through one encoder, too,
// which then has other pieces in its memory at each.
void ExpectTiktokensTokens(const std::string& vocabulary, int merges, const std::string& fixture) {
  const Bpe bpe = LoadBpe(vocabulary);
  EXPECT_EQ(bpe.merges(), merges);
  BpeEncoder encoder(&bpe);
  const std::vector<Case> cases = ReadCases(fixture);
  EXPECT_GT(cases.size(), 80u);
  for (const Case& one : cases) {
    const std::string shown = one.text.substr(0, 200);
    const Ids ids = bpe.Encode(one.text);
    EXPECT_EQ(Column(ids), one.column) << shown;
    for (int round = 0; round < 2; ++round) {  // the second time from memory
      Ids appended = {7};
      encoder.Append(one.text, &appended);
      EXPECT_EQ(appended.front(), 7);
      appended.erase(appended.begin());
      EXPECT_EQ(Column(appended), one.column) << shown;
    }
    const absl::StatusOr<std::string> decoded = bpe.Decode(ids);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, one.text);
  }
}

TEST(Bpe, SameTokensAsTiktoken) {
  ExpectTiktokensTokens(kVocabulary, Bpe::kGpt2Merges, "data/bpe/testdata/gpt2_cases.txt");
}

TEST(Bpe, SameTokensAsTiktokenWithTheFirstMerges) {
  ExpectTiktokensTokens(kMerges, 2000, "data/bpe/testdata/cases.txt");
}

// The known answers of the vocabulary's own description.
TEST(Bpe, KnownAnswers) {
  const Bpe bpe = LoadBpe(kVocabulary);
  EXPECT_EQ(bpe.Encode("Hello, world!"), (Ids{15496, 11, 995, 0}));
  EXPECT_EQ(bpe.Encode("It's a test"), (Ids{1026, 338, 257, 1332}));
  EXPECT_EQ(bpe.Encode(""), Ids{});
}

TEST(Bpe, TiktokenFileIsTheSameVocabulary) {
  const Bpe bpe = LoadBpe(kVocabulary);
  std::string lines;
  for (int id = 256 + bpe.merges() - 1; id >= 0; --id) {  // any order will do
    const absl::StatusOr<std::string> bytes = bpe.Decode(Ids{static_cast<uint16_t>(id)});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    absl::StrAppend(&lines, absl::Base64Escape(*bytes), " ", id, "\n");
  }
  const Bpe same = LoadBpe(WriteFile("gpt2.tiktoken", lines));
  EXPECT_EQ(same.merges(), Bpe::kGpt2Merges);
  for (const Case& one : ReadCases("data/bpe/testdata/gpt2_cases.txt")) {
    EXPECT_EQ(Column(same.Encode(one.text)), one.column);
  }
}

// Bytes as a hash makes them, so that nothing is well-formed for long.
std::string RandomBytes(int size, uint32_t* state) {
  std::string text;
  for (int i = 0; i < size; ++i) {
    *state = *state * 1664525 + 1013904223;  // Numerical Recipes' generator
    text += static_cast<char>(*state >> 24);
  }
  return text;
}

TEST(Bpe, AnyBytesComeBack) {
  const Bpe bpe = LoadBpe(kMerges);
  uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    const std::string text = RandomBytes(50, &state);
    const absl::StatusOr<std::string> decoded = bpe.Decode(bpe.Encode(text));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text);
  }
}

// Far more pieces than there is memory for, each at least twice.
TEST(BpeEncoder, ForgetsWithoutError) {
  const Bpe bpe = LoadBpe(kMerges);
  BpeEncoder encoder(&bpe);
  for (int round = 0; round < 2; ++round) {
    uint32_t state = 5;
    std::string text;
    for (int i = 0; i < 200000; ++i) {
      state = state * 1664525 + 1013904223;
      absl::StrAppend(&text, " ", state >> 8 & 0x3FFFF, "x");
    }
    text += RandomBytes(100000, &state);
    Ids ids;
    encoder.Append(text, &ids);
    EXPECT_EQ(ids, bpe.Encode(text));
  }
}

// Merging rescans nothing: quadratic time would take minutes here.
TEST(Bpe, LongPieceIsFast) {
  const Bpe bpe = LoadBpe(kMerges);
  const std::string text(1 << 20, 'e');
  const absl::StatusOr<std::string> decoded = bpe.Decode(bpe.Encode(text));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, text);
}

TEST(Bpe, DecodeEndOfTextAndUnknownIds) {
  const Bpe bpe = LoadBpe(kMerges);
  const absl::StatusOr<std::string> text = bpe.Decode(Ids{50256, 32});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "<|endoftext|>A");

  const absl::Status status = bpe.Decode(Ids{32, 2256}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("token 2256 at position 1"), std::string::npos) << status;
}

TEST(Bpe, BadFilesAreNamedWithTheirLine) {
  EXPECT_EQ(Bpe::Load("no/such/file").status().code(), absl::StatusCode::kNotFound);
  const absl::Status bad = Bpe::Load(WriteFile("bad.txt", "#version: 0.2\na b\nab\n")).status();
  EXPECT_NE(bad.message().find("bad.txt:3: not two words"), std::string::npos) << bad;
  EXPECT_NE(bad.message().find("give GPT-2's vocab.bpe"), std::string::npos) << bad;
  const absl::Status large = Bpe::Load(WriteFile("large", std::string(17 << 20, 'x'))).status();
  EXPECT_NE(large.message().find("large: more than 16777216 bytes"), std::string::npos) << large;
  const absl::Status folder = Bpe::Load(testing::TempDir()).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument) << folder;
}

}  // namespace
}  // namespace data
