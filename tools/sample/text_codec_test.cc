#include "tools/sample/text_codec.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

TEST(TextCodec, BytesNeedNoMerges) {
  const auto codec = TextCodec::Create(data::TokenMap::ByteVocabulary(), "");
  ASSERT_TRUE(codec.ok()) << codec.status();
  const std::string text = "a\n\xC3\xA9";
  const std::vector<int32_t> tokens = codec->Encode(text);
  ASSERT_EQ(tokens.size(), text.size());
  for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(*codec->Decode(tokens[i]), text.substr(i, 1));
  EXPECT_EQ(codec->bos(), 256);
  EXPECT_EQ(codec->classes(), 257);
  EXPECT_FALSE(codec->Decode(256).ok());
}

TEST(TextCodec, K2_18_AWrittenEndOfTextIsTextAndNoted) {
  const auto codec = TextCodec::Create(data::TokenMap::ByteVocabulary(), "");
  ASSERT_TRUE(codec.ok()) << codec.status();
  const std::vector<int32_t> tokens = codec->Encode("<|endoftext|>");
  EXPECT_EQ(tokens.size(), 13u);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), codec->bos()), 0);
  const std::string note = EndOfTextNote("Once <|endoftext|> upon", *codec);
  for (const char* part : {"<|endoftext|> in the prompt is text", "13 tokens", "256"}) {
    EXPECT_NE(note.find(part), std::string::npos) << note;
  }
  EXPECT_EQ(EndOfTextNote("Once <|endof text|> upon", *codec), "");
}

TEST(TextCodec, Gpt2TokensNeedThemAndTheErrorSaysWhere) {
  const std::string root = testing::TempDir() + "/codec";
  setenv("DATA_PATH", root.c_str(), 1);
  const auto missing = TextCodec::Create(data::TokenMap(), "");
  ASSERT_EQ(missing.status().code(), absl::StatusCode::kNotFound) << missing.status();
  const std::string message(missing.status().message());
  EXPECT_NE(message.find(root + "/data/gpt2/merges.txt"), std::string::npos) << message;
  EXPECT_NE(message.find("--vocab"), std::string::npos) << message;

  std::filesystem::create_directories(root + "/data/gpt2");
  std::ofstream(root + "/data/gpt2/merges.txt") << "#version: 0.2\nh e\nl l\n";
  const auto codec = TextCodec::Create(data::TokenMap(), "");
  unsetenv("DATA_PATH");
  ASSERT_TRUE(codec.ok()) << codec.status();
  EXPECT_EQ(codec->Encode("hello").size(), 3u);
  EXPECT_EQ(*codec->Decode(256), "he");
  EXPECT_FALSE(codec->Decode(300).ok());
}

}  // namespace
}  // namespace tools
