#include "data/bpe/vocabulary.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "gtest/gtest.h"

namespace data {
namespace {

std::string Error(const std::string& contents) {
  const absl::StatusOr<std::vector<std::string>> tokens = ParseVocabulary(contents);
  return tokens.ok() ? "no error" : std::string(tokens.status().message());
}

// Whether the error begins with this text.
testing::AssertionResult Fails(const std::string& contents, const std::string& expected) {
  const std::string error = Error(contents);
  if (error.compare(0, expected.size(), expected) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << error;
}

std::string TiktokenLine(const std::string& bytes, int id) {
  return absl::StrCat(absl::Base64Escape(bytes), " ", id, "\n");
}

// The single bytes as a tiktoken file has them.
std::string Bytes() {
  std::string lines;
  for (int id = 0; id < kByteTokens; ++id) {
    lines += TiktokenLine(std::string(1, static_cast<char>(kByteOfToken[id])), id);
  }
  return lines;
}

TEST(ParseVocabulary, Merges) {
  const auto tokens = ParseVocabulary("#version: 0.2\n\u0120 t\n\u0120t h\n\u0100 \u00a1");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 259u);
  EXPECT_EQ((*tokens)[0], "!");
  EXPECT_EQ((*tokens)[256], " t");
  EXPECT_EQ((*tokens)[257], " th");
  EXPECT_EQ((*tokens)[258], std::string("\0\xA1", 2));
}

TEST(ParseVocabulary, Tiktoken) {
  const auto tokens = ParseVocabulary(Bytes() + TiktokenLine(" th", 257) + TiktokenLine(" t", 256));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 258u);
  EXPECT_EQ((*tokens)[0], "!");
  EXPECT_EQ((*tokens)[255], "\xAD");
  EXPECT_EQ((*tokens)[256], " t");
  EXPECT_EQ((*tokens)[257], " th");
}

TEST(ParseVocabulary, BadMergesAreNamedByLine) {
  EXPECT_TRUE(Fails("#version: 0.2\n", "1: has no merges"));
  EXPECT_TRUE(Fails("#version: 0.2\na b\nab\n", "3: not two words"));
  EXPECT_TRUE(Fails("#version: 0.2\na b\n\n", "3: not two words"));
  EXPECT_TRUE(Fails("#version: 0.2\na b c\n", "2: not two words"));
  EXPECT_TRUE(Fails("#version: 0.2\na bc\n", "2: \"bc\" is neither"));
  EXPECT_TRUE(Fails("#version: 0.2\n b\n", "2: \"\" is neither"));
  EXPECT_TRUE(Fails("#version: 0.2\na b\na b\n", "3: gives a token"));
  // A tab, the end of a Windows line, half a character, and one beyond the 256 that stand for
  // bytes.
  EXPECT_TRUE(Fails("#version: 0.2\na \t\n", "2: \"\\t\" has a character that stands for no byte"));
  EXPECT_TRUE(Fails("#version: 0.2\r\na b\r\n", "2: \"b\\r\" has a character"));
  EXPECT_TRUE(Fails("#version: 0.2\na \xC4\n", "2: \"\xC4\" has a character"));
  EXPECT_TRUE(Fails("#version: 0.2\na \u0144\n", "2: \"\u0144\" has a character"));
}

TEST(ParseVocabulary, TooManyMerges) {
  std::string lines = "#version: 0.2\n";
  // Pairs of ASCII characters, then pairs of pairs.
  std::vector<std::string> pairs;
  for (int a = '!'; a <= '~'; ++a) {
    for (int b = '!'; b <= '~'; ++b) pairs.push_back({static_cast<char>(a), static_cast<char>(b)});
  }
  int count = 0;
  for (const std::string& pair : pairs) {
    absl::StrAppend(&lines, pair.substr(0, 1), " ", pair.substr(1), "\n");
    ++count;
  }
  for (size_t i = 0; count < 50001; ++i, ++count) {
    absl::StrAppend(&lines, pairs[i % pairs.size()], " ", pairs[i / pairs.size()], "\n");
  }
  EXPECT_TRUE(Fails(lines, "50002: more than 50000 merges"));
  lines.resize(lines.rfind('\n', lines.size() - 2) + 1);
  EXPECT_EQ(Error(lines), "no error");
}

TEST(ParseVocabulary, BadTiktokenFilesAreNamedByLine) {
  EXPECT_TRUE(Fails(Bytes(), "256: the file ends after 256 ids"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ=\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 256 \n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= +256\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 256x\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= \n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "\xC3\xA4=== 256\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + " 256\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "\n", "257: not a token's bytes in base64"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 255\n", "257: id 255 is not the single byte"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 50256\n", "257: id 50256 is not below 50256"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 99999999999999999999\n", "257: not a token's bytes"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 256\nIHU= 256\n", "258: id 256 comes twice"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 256\nIHQ= 257\n", "258: gives an id to bytes"));
  EXPECT_TRUE(Fails(Bytes() + "IHQ= 257\n", "257: the file ends, and no line gave the id 256"));
  // Another order of the bytes.
  EXPECT_TRUE(Fails("AA== 0\n", "1: begins neither"));
}

TEST(ParseVocabulary, OtherFiles) {
  EXPECT_TRUE(Fails("", "1: begins neither"));
  EXPECT_TRUE(Fails("a b\n", "1: begins neither with \"#version\" nor"));
  EXPECT_TRUE(Fails("{\"!\": 0}", "1: is JSON"));
  EXPECT_TRUE(Fails(std::string("\0\0\0\0", 4), "1: begins neither"));
}

}  // namespace
}  // namespace data
