#include "data/batcher.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Pieces = std::vector<Piece>;

BatchOptions Options(int slots, int64_t slot_tokens, int64_t max_doc_len, int64_t max_documents) {
  return {slots, slot_tokens, max_doc_len, max_documents};
}

// A shard with BOS where told, and its positions modulo 50000 elsewhere.
std::vector<uint16_t> Tokens(const std::vector<int64_t>& bos, int64_t size) {
  std::vector<uint16_t> tokens(size);
  for (int64_t t = 0; t < size; ++t) tokens[t] = static_cast<uint16_t>(t % 50000);
  for (const int64_t b : bos) tokens[b] = kGpt2Bos;
  return tokens;
}

// All batches of a shard.
std::vector<BatchPlan> PlanAll(const BatchOptions& options, const std::vector<int64_t>& bos,
                               int64_t tokens) {
  std::vector<BatchPlan> plans;
  int64_t at = 0;
  while (true) {
    const auto plan = PlanBatch(options, bos, tokens, at);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok() || !*plan) return plans;
    plans.push_back(**plan);
    at = plans.back().next_document;
  }
}

const std::vector<int64_t> kBos = {3, 8, 11, 23, 24, 30, 41, 47, 60, 70, 72, 80};
const std::vector<Pieces> kGolden = {{{3, 8}, {8, 11}, {11, 14}},
                                     {{23, 24}, {24, 30}, {30, 34}},
                                     {{41, 47}, {47, 52}},
                                     {{60, 68}, {70, 72}, {72, 73}}};
const std::vector<std::vector<int32_t>> kGoldenBoundaries = {{0, 5, 8, 10, 10, 10, 10, 10},
                                                             {0, 1, 7, 10, 10, 10, 10, 10},
                                                             {0, 6, 10, 10, 10, 10, 10, 10},
                                                             {0, 8, 10, 10, 10, 10, 10, 10}};

TEST(Batcher, T1_15_Golden) {
  const std::vector<uint16_t> tokens = Tokens(kBos, 95);
  for (const int slots : {1, 2}) {
    const BatchOptions options = Options(slots, 10, 8, 8);
    const std::vector<BatchPlan> plans = PlanAll(options, kBos, 95);
    ASSERT_EQ(static_cast<int>(plans.size()) * slots, 4);
    EXPECT_EQ(plans.back().next_document, 11);
    for (int k = 0; k < 4; ++k) {
      const BatchPlan& plan = plans[k / slots];
      EXPECT_EQ(plan.slots[k % slots], kGolden[k]) << "segment " << k;
      const SlotBatch slot = BuildBatch(options, plan, tokens, TokenMap()).slots[k % slots];
      EXPECT_EQ(slot.boundaries, kGoldenBoundaries[k]) << "segment " << k;
      std::vector<int32_t> buffer;
      for (const Piece& piece : kGolden[k]) {
        buffer.insert(buffer.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
      }
      EXPECT_EQ(slot.inputs, std::vector<int32_t>(buffer.begin(), buffer.end() - 1));
      EXPECT_EQ(slot.targets, std::vector<int32_t>(buffer.begin() + 1, buffer.end()));
    }
  }
}

// A document that ends exactly at T is followed by one that is a single target.
TEST(Batcher, T1_15_ExactFit) {
  const std::vector<int64_t> bos = {0, 6, 10, 20};
  const BatchOptions options = Options(1, 10, 8, 8);
  const std::vector<BatchPlan> plans = PlanAll(options, bos, 30);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].slots[0], (Pieces{{0, 6}, {6, 10}, {10, 11}}));
  const GlobalBatch batch =
      BuildBatch(options, plans[0], Tokens(bos, 30), TokenMap::Identity(50257));
  EXPECT_EQ(batch.slots[0].boundaries, (std::vector<int32_t>{0, 6, 10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(batch.slots[0].targets.back(), 50256);
}

TEST(Batcher, T1_16_BoundariesLength) {
  EXPECT_EQ(DefaultMaxDocuments(49152), 256);
  EXPECT_EQ(DefaultMaxDocuments(262144), 896);
  EXPECT_EQ(DefaultMaxDocuments(32768), 128);
  EXPECT_EQ(DefaultMaxDocuments(64), 128);
  EXPECT_EQ(MaxDocuments(Options(8, 49152, 2048, 0)), 256);
  EXPECT_EQ(MaxDocuments(Options(8, 49152, 2048, 300)), 300);
}

TEST(Batcher, T1_17_PiecesAreBeginningsOfDocuments) {
  std::mt19937 random(1);
  std::geometric_distribution<int> length(1.0 / 900);
  std::vector<int64_t> bos;
  int64_t size = 5;
  while (size < 3'000'000) {
    bos.push_back(size);
    size += 1 + length(random);
  }
  const BatchOptions options = Options(8, 49152, 2048, 0);
  const std::vector<BatchPlan> plans = PlanAll(options, bos, size);
  ASSERT_GE(plans.size(), 4u);
  for (const BatchPlan& plan : plans) {
    ASSERT_EQ(plan.slots.size(), 8u);
    for (const Pieces& pieces : plan.slots) {
      int64_t sum = 0;
      for (const Piece& piece : pieces) {
        EXPECT_TRUE(std::binary_search(bos.begin(), bos.end(), piece.begin));
        EXPECT_GE(piece.end - piece.begin, 1);
        EXPECT_LE(piece.end - piece.begin, 2048);
        sum += piece.end - piece.begin;
      }
      EXPECT_EQ(sum, 49153);
    }
  }
}

TEST(Batcher, D6_TooManyDocuments) {
  std::vector<int64_t> bos;
  for (int64_t t = 0; t < 30'000; t += 3) bos.push_back(t);
  const auto refused = PlanBatch(Options(1, 3000, 2048, 1001), bos, 30'000, 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"1000 documents", "1001 entries", "3000 tokens"}) {
    EXPECT_TRUE(absl::StrContains(refused.status().message(), part)) << refused.status();
  }
  // 1000 documents and one that is a single target.
  const auto plan = PlanBatch(Options(1, 3000, 2048, 1002), bos, 30'000, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->slots[0].size(), 1001u);
  const SlotBatch slot =
      BuildBatch(Options(1, 3000, 2048, 1002), **plan, Tokens(bos, 30'000), TokenMap()).slots[0];
  EXPECT_EQ(slot.boundaries.size(), 1002u);
  EXPECT_EQ(slot.boundaries.back(), 3000);
}

TEST(Batcher, D8_CountsWhatIsDropped) {
  // 20 tokens, 12 beyond the maximum; then 10, of which 3 are wanted and 8 allowed: 5 cut by the
  // slot's end and 2 beyond the maximum.
  const std::vector<int64_t> bos = {0, 20};
  const auto plan = PlanBatch(Options(1, 10, 8, 8), bos, 30, 0);
  ASSERT_TRUE(plan.ok() && *plan);
  EXPECT_EQ((*plan)->slots[0], (Pieces{{0, 8}, {20, 23}}));
  EXPECT_EQ((*plan)->stats.documents, 2);
  EXPECT_EQ((*plan)->stats.documents_truncated, 2);
  EXPECT_EQ((*plan)->stats.tokens_truncated, 14);
  EXPECT_EQ((*plan)->stats.tokens_cut, 5);
}

TEST(Batcher, MapsTokens) {
  const std::vector<int64_t> bos = {0, 6, 10, 20};
  const BatchOptions options = Options(1, 10, 8, 8);
  const auto plan = PlanBatch(options, bos, 30, 0);
  ASSERT_TRUE(plan.ok() && *plan);
  const GlobalBatch batch =
      BuildBatch(options, **plan, Tokens(bos, 30), TokenMap::ByteVocabulary());
  EXPECT_EQ(batch.slots[0].inputs, (std::vector<int32_t>{256, 1, 2, 3, 4, 5, 256, 7, 8, 9}));
  EXPECT_EQ(batch.slots[0].targets, (std::vector<int32_t>{1, 2, 3, 4, 5, 256, 7, 8, 9, 256}));
}

TEST(Batcher, RefusesBadOptions) {
  EXPECT_TRUE(ValidateBatchOptions(Options(1, 1, 1, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Options(0, 1, 1, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Options(1, 0, 1, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Options(1, int64_t{1} << 31, 1, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Options(1, 1, 0, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Options(1, 1, 1, 1)).ok());
}

}  // namespace
}  // namespace data
