#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe/bpe.h"
#include "data/shard.h"
#include "gtest/gtest.h"
#include "tools/tokenize/tokenize.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<uint16_t>;

constexpr uint16_t kEot = data::Bpe::kEndOfText;

const data::Bpe& Gpt2() {
  static const data::Bpe& bpe =
      *new data::Bpe(data::Bpe::Load("data/bpe/testdata/vocab.bpe").value());
  return bpe;
}

std::string WriteFile(const std::string& name, const std::string& contents) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TokenizeConfig Config(std::vector<Input> inputs) {
  TokenizeConfig config;
  config.inputs = std::move(inputs);
  config.shards = {.out_dir = testing::TempDir() + "/shards", .val_tokens = 0};
  fs::remove_all(config.shards.out_dir);
  return config;
}

Input Text(const std::string& contents) {
  return {WriteFile("a.txt", contents), TextFormat::kText};
}
Input Lines(const std::string& contents) {
  return {WriteFile("a.jsonl", contents), TextFormat::kJsonLines};
}

absl::StatusOr<TokenizeSummary> Summarise(const TokenizeConfig& config) {
  return Tokenize(config, Gpt2(), [](const TokenizeSummary&) {});
}

// The tokens of the one training shard, or those before an error.
Tokens TokensOf(const TokenizeConfig& config) {
  const absl::StatusOr<TokenizeSummary> summary = Summarise(config);
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (!summary.ok()) return {};
  EXPECT_EQ(summary->files.size(), 1u);
  const data::Shard shard = data::Shard::Open(summary->files.front().path).value();
  return Tokens(shard.tokens().begin(), shard.tokens().end());
}

std::string ErrorOf(const TokenizeConfig& config) {
  const absl::StatusOr<TokenizeSummary> summary = Summarise(config);
  EXPECT_FALSE(summary.ok());
  EXPECT_TRUE(!fs::exists(config.shards.out_dir) || fs::is_empty(config.shards.out_dir));
  return std::string(summary.status().message());
}

// Each document on its own, with end-of-text before it.
Tokens Expected(const std::vector<std::string>& documents) {
  Tokens tokens;
  for (const std::string& document : documents) {
    tokens.push_back(kEot);
    for (const uint16_t id : Gpt2().Encode(document)) tokens.push_back(id);
  }
  return tokens;
}

TEST(Tokenize, TextJsonAndSeparators) {
  EXPECT_EQ(TokensOf(Config({Text("Hello, world!")})), (Tokens{kEot, 15496, 11, 995, 0}));
  EXPECT_EQ(TokensOf(Config({Text("one"), Lines("{\"text\": \"t\\u0077o\"}\n\n{\"text\": \"\"}")})),
            Expected({"one", "two", ""}));
  TokenizeConfig config = Config({Text("one\n---\ntwo\n---\n")});
  config.source.split_on = "\n---\n";
  EXPECT_EQ(TokensOf(config), Expected({"one", "two"}));
  config = Config({Lines("{\"body\": \"x\", \"text\": \"y\"}")});
  config.encode.field = "body";
  EXPECT_EQ(TokensOf(config), Expected({"x"}));
}

TEST(Tokenize, K2_03_JsonlThatBeginsWithAByteOrderMark) {
  const std::string mark = "\xEF\xBB\xBF", line = "{\"text\": \"one\"}\n";
  EXPECT_EQ(TokensOf(Config({Lines(mark + line + line)})), Expected({"one", "one"}));
  EXPECT_EQ(TokensOf(Config({Lines(mark + line), Lines(mark + line)})), Expected({"one", "one"}));
  EXPECT_EQ(Summarise(Config({Lines(mark + "\n" + line)}))->blank_lines, 1);
  // Positions are still the file's.
  TokenizeConfig config = Config({Lines(mark + "{\"text\": \"a\xFF\"}\n")});
  config.encode.replace_malformed = false;
  EXPECT_NE(ErrorOf(config).find("a.jsonl:1: byte 14: 0xff"), std::string::npos);
  // Files put together, each with its mark: named, with the line.
  for (const int64_t chunk_bytes : {1, 20, 1000}) {
    config = Config({Lines(mark + line + mark + line)});
    config.source.chunk_bytes = chunk_bytes;
    EXPECT_NE(ErrorOf(config).find("a.jsonl:2: the line begins with a byte order mark"),
              std::string::npos);
  }
}

// The text's own end-of-text is text, as for tiktoken's encode_ordinary.
TEST(Tokenize, SpecialTokensAreText) {
  const Tokens tokens = TokensOf(Config({Text("a<|endoftext|>b")}));
  EXPECT_EQ(tokens, Expected({"a<|endoftext|>b"}));
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), kEot), 1);
}

TEST(Tokenize, K2_18_AWrittenEndOfTextIsNoted) {
  const std::string note = "<|endoftext|> in the texts: 3 times; it is text there";
  TokenizeConfig config =
      Config({Text("a<|endoftext|>b<|endoftext|>"), Lines("{\"text\": \"<|endoftext|>\"}\n")});
  EXPECT_NE(NotesText(*Summarise(config)).find(note), std::string::npos);
  config = Config({Text("a<|endoftext|>b")});
  config.source.split_on = "<|endoftext|>";
  EXPECT_EQ(NotesText(*Summarise(config)), "");
}

TEST(Tokenize, MalformedUtf8) {
  const std::string bad = "good \xE4\xB8 then \x80\x80.";
  TokenizeConfig config = Config({Text(bad)});
  EXPECT_EQ(TokensOf(config), Expected({"good \uFFFD then \uFFFD\uFFFD."}));
  config.shards.overwrite = true;
  EXPECT_EQ(Summarise(config)->malformed, 3);
  EXPECT_EQ(NotesText(*Summarise(config)),
            "malformed UTF-8 sequences: 3; each became U+FFFD; the first: " +
                config.inputs[0].path + ": byte 5\n");
  // In JSON before its escapes are read; positions are those of the file.
  config = Config({Lines("{\"text\": \"\"}\n{\"text\": \"a\xFF\\n\"}\n")});
  EXPECT_EQ(TokensOf(config), Expected({"", "a\uFFFD\n"}));

  config = Config({Text(bad)});
  config.encode.replace_malformed = false;
  EXPECT_NE(ErrorOf(config).find("a.txt: byte 5: 0xe4 begins no UTF-8"), std::string::npos);
  config.inputs = {Lines("{\"text\": \"\"}\n{\"text\": \"a\xFF\"}\n")};
  EXPECT_NE(ErrorOf(config).find("a.jsonl:2: byte 24: 0xff begins no UTF-8"), std::string::npos);
}

TEST(Tokenize, NotesAndErrorsSayWhere) {
  TokenizeConfig config = Config({Lines("{\"text\": \"\"}\n \r\n\n{\"text\": \"x\"}\n")});
  EXPECT_EQ(NotesText(*Summarise(config)),
            "empty documents: 1; an end-of-text alone was written for each\n"
            "blank lines of JSONL: 2; passed over\n");

  const std::string line = "{\"text\": \"some words\"}\n";
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += line;
  for (const int64_t chunk_bytes : {16, 500, 1 << 20}) {
    config = Config({Text("text"), Lines(lines + "{\"text\": 7}\n" + lines)});
    config.source.chunk_bytes = chunk_bytes;
    const std::string error = ErrorOf(config);
    EXPECT_NE(error.find("a.jsonl:101: the field \"text\" is no string"), std::string::npos)
        << error;
  }
  config = Config({Lines("{}")});
  EXPECT_NE(ErrorOf(config).find("a.jsonl:1: the object has no field \"text\""), std::string::npos);
  config = Config({Lines(" \n")});
  EXPECT_NE(ErrorOf(config).find("no documents"), std::string::npos);
  config = Config({Lines("{\"text\": \"" + std::string(200, 'x') + "\"}\n{}\n")});
  config.encode.max_line_bytes = 100;
  EXPECT_NE(ErrorOf(config).find("a.jsonl:1: the line has 212 bytes, more than 100"),
            std::string::npos);
}

std::string MixedText() {
  std::string text;
  uint32_t state = 1;
  const std::vector<std::string> words = {"the ",         "it's",   "\n\n",     "  ",  "caf\u00e9",
                                          "\u4e2d\u6587", "7",      "'",        "...", "\x80",
                                          "ab",           "\u3000", "\xE4\xB8", "\n"};
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
    text += words[(state >> 16) % words.size()];
  }
  return text;
}

TEST(Tokenize, SameShardsForAnyThreadsAndChunks) {
  const std::string text = MixedText();
  Tokens expected;
  for (const int threads : {1, 2, 7}) {
    for (const int64_t chunk_bytes : {64, 1000, 1 << 20}) {
      TokenizeConfig config = Config({Text(text), Text(text)});
      config.threads = threads;
      config.source.chunk_bytes = chunk_bytes;
      const Tokens tokens = TokensOf(config);
      if (expected.empty()) expected = tokens;
      EXPECT_EQ(tokens, expected) << threads << " threads, chunks of " << chunk_bytes;
    }
  }
  EXPECT_GT(expected.size(), 20000u);
}

TEST(ProgressText, KnownAndUnknownSize) {
  TokenizeSummary summary;
  summary.bytes = 50'000'000;
  summary.tokens = 10'000'000;
  summary.seconds = 2;
  EXPECT_EQ(ProgressText(summary, 200'000'000),
            "[=======>                      ]  25 %  25.0 MB/s  5.00 M tokens/s  0:06 left");
  EXPECT_EQ(ProgressText(summary, -1), "50.0 MB  25.0 MB/s  5.00 M tokens/s");
  summary.files = {{"d/x_train_000001.bin", 10'000'000}};
  summary.documents = 3;
  summary.threads = 2;
  EXPECT_EQ(
      SummaryText(summary),
      "d/x_train_000001.bin  10000000 tokens\n"
      "3 documents, 50000000 bytes -> 10000000 tokens with 3 end-of-text (5.00 bytes a token)\n"
      "2.00 s on 2 threads: 25.0 MB/s, 5.00 M tokens/s\n");
}

}  // namespace
}  // namespace tools
