#include "tools/inspect_shard/shard_report.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "gtest/gtest.h"
#include "tools/inspect_shard/histogram.h"
#include "tools/inspect_shard/report_text.h"

namespace tools {
namespace {

using Tokens = std::vector<uint16_t>;

constexpr uint16_t kBos = data::kGpt2Bos;

data::Shard MakeShard(const Tokens& tokens) {
  const std::string path = testing::TempDir() + "/shard.bin";
  const absl::Status status = data::WriteShard(path, tokens);
  EXPECT_TRUE(status.ok()) << status;
  absl::StatusOr<data::Shard> shard = data::Shard::Open(path);
  EXPECT_TRUE(shard.ok()) << shard.status();
  return *std::move(shard);
}

Tokens BytesAsTokens(const std::string& text) {
  Tokens tokens;
  for (const char c : text) tokens.push_back(data::kTokenOfByte[static_cast<uint8_t>(c)]);
  return tokens;
}

TEST(Inspect, DocumentsAndCounts) {
  const ShardReport report = Inspect(MakeShard({7, 8, kBos, 7, 7, kBos, kBos, 9}), 50257);
  EXPECT_EQ(report.tokens, 8);
  EXPECT_EQ(report.tokens_before_documents, 2);
  ASSERT_EQ(report.documents.size(), 3u);
  EXPECT_EQ(report.documents[0].begin, 2);
  EXPECT_EQ(report.documents[0].length, 3);
  EXPECT_EQ(report.documents[1].begin, 5);
  EXPECT_EQ(report.documents[1].length, 1);
  EXPECT_EQ(report.documents[2].length, 2);
  EXPECT_EQ(report.counts[7], 3);
  EXPECT_EQ(report.counts[kBos], 3);
  EXPECT_EQ(report.counts[10], 0);
  // Shares 3/8, 3/8, 1/8, 1/8. Double arithmetic on a handful of terms.
  const double entropy = 0.75 * std::log(8.0 / 3) + 0.25 * std::log(8.0);
  EXPECT_NEAR(report.unigram_entropy, entropy, 1e-12);
  EXPECT_TRUE(report.faults.empty());
  EXPECT_EQ(MostFrequent(report, 3), (Tokens{7, kBos, 8}));
  EXPECT_EQ(MostFrequent(report, 9), (Tokens{7, kBos, 8, 9}));
}

TEST(Inspect, TokensOutsideTheVocabularyAreAFault) {
  const data::Shard shard = MakeShard({kBos, 3, 50257, 4, 60000});
  const ShardReport report = Inspect(shard, 50257);
  ASSERT_EQ(report.faults.size(), 1u);
  EXPECT_NE(report.faults[0].find("2 tokens are outside the vocabulary of 50257, the first 50257 "
                                  "at position 2"),
            std::string::npos)
      << report.faults[0];
  EXPECT_TRUE(Inspect(shard, 60001).faults.empty());
}

TEST(Inspect, NoBosIsAFault) {
  const data::Shard shard = MakeShard({1, 2, 3});
  const ShardReport report = Inspect(shard, 50257);
  EXPECT_EQ(report.tokens_before_documents, 3);
  ASSERT_EQ(report.faults.size(), 1u);
  EXPECT_NE(report.faults[0].find("none of the 3 tokens is BOS"), std::string::npos);
  EXPECT_NE(ReportText(shard, report, {}).find("FAULT: none of the 3"), std::string::npos);
}

TEST(LengthPercentile, NearestRank) {
  Tokens tokens;
  for (const int length : {5, 1, 3, 2, 4}) {  // with BOS
    tokens.push_back(kBos);
    tokens.insert(tokens.end(), length - 1, 0);
  }
  const ShardReport report = Inspect(MakeShard(tokens), 50257);
  EXPECT_EQ(LengthPercentile(report, 0), 1);
  EXPECT_EQ(LengthPercentile(report, 20), 1);
  EXPECT_EQ(LengthPercentile(report, 21), 2);
  EXPECT_EQ(LengthPercentile(report, 50), 3);
  EXPECT_EQ(LengthPercentile(report, 90), 5);
  EXPECT_EQ(LengthPercentile(report, 100), 5);
}

TEST(Histogram, Lengths) {
  Tokens tokens;
  for (const int length : {2, 3, 3, 9}) {  // with BOS
    tokens.push_back(kBos);
    tokens.insert(tokens.end(), length - 1, 0);
  }
  const ShardReport report = Inspect(MakeShard(tokens), 50257);
  // Nothing of length 1; 4-7 is empty but inside.
  EXPECT_EQ(HistogramText(LengthHistogram(report)),
            "  2-3                               3   75.00 %  "
            "########################################\n"
            "  4-7                               0    0.00 %\n"
            "  8-15                              1   25.00 %  ##############\n");
}

TEST(Histogram, IdsAtTheEdgesOfBins) {
  const ShardReport report =
      Inspect(MakeShard({0, 255, 256, 1023, 1024, 4095, 16383, 16384, 50255, kBos, 65535}), 65536);
  std::vector<int64_t> counts;
  for (const Bin& bin : IdHistogram(report)) counts.push_back(bin.count);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 2, 2, 1, 2, 1, 1}));
  EXPECT_EQ(IdHistogram(report).back().label, "50257-65535 beyond GPT-2");
}

TEST(ReadableText, BytesUnknownTokensControlCharacters) {
  Tokens tokens = BytesAsTokens("a\tb\n\x1b[2J\x7f\xC3\xA9");
  tokens.push_back(1000);
  EXPECT_EQ(ReadableText(tokens, nullptr), "a\tb\n\\x1b[2J\\x7f\xC3\xA9<1000>");
}

TEST(ReadableText, WithMerges) {
  const absl::StatusOr<data::Bpe> bpe = data::Bpe::Load("data/bpe/testdata/merges.txt");
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  // 262 is " the", 50000 beyond these merges.
  EXPECT_EQ(ReadableText({32, 262, 50000}, &*bpe), "A the<50000>");
}

TEST(ReportText, HasAllParts) {
  Tokens tokens = BytesAsTokens("xx");
  for (const char* text : {"first text", "second"}) {
    tokens.push_back(kBos);
    const Tokens document = BytesAsTokens(text);
    tokens.insert(tokens.end(), document.begin(), document.end());
  }
  const data::Shard shard = MakeShard(tokens);
  const std::string text = ReportText(shard, Inspect(shard, 50257), {.top = 1, .max_tokens = 6});
  // "t" and "x" come three times each; the entropy is 0.3 ln(20/3) + 0.3 ln(10) + 0.4 ln(20).
  EXPECT_EQ(text, absl::StrCat(shard.path(), R"(
header: magic 20240520, version 1, 20 tokens in 1064 bytes
2 documents; 2 tokens before the first
document lengths, BOS included: mean 9.0
   p0 7  p10 7  p25 7  p50 7  p75 11  p90 11  p99 11  p100 11
  4-7                               1   50.00 %  ########################################
  8-15                              1   50.00 %  ########################################
tokens by id:
  0-255 single bytes               18   90.00 %  ########################################
  256-1023                          0    0.00 %
  1024-4095                         0    0.00 %
  4096-16383                        0    0.00 %
  16384-50255                       0    0.00 %
  50256 end-of-text                 2   10.00 %  #####
unigram entropy 2.4582 nats per token, 13 distinct tokens; the most frequent:
     83           3   15.00 %  "t"
(without --merges, GPT-2's vocab.bpe, longer tokens are shown by id)
--- document 0, 11 tokens from position 2
first ...
--- document 1, 7 tokens from position 13
second
)"));
}

}  // namespace
}  // namespace tools
