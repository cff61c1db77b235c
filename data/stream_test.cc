// BatchMode::kStream: batches, their loader, and the validation stream, which has the same slots.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batcher.h"
#include "data/loader.h"
#include "data/loader_testing.h"
#include "data/shard.h"
#include "data/validation.h"
#include "gtest/gtest.h"

namespace data {
namespace {

BatchOptions Stream(int slots, int64_t slot_tokens, int64_t max_documents = 0) {
  return {.slots = slots,
          .slot_tokens = slot_tokens,
          .max_documents = max_documents,
          .mode = BatchMode::kStream};
}

// modded-nanogpt's track 2: eight slots of 65,536 tokens.
constexpr int64_t kRecordSlot = 65'536;
BatchOptions RecordBatch() { return Stream(8, kRecordSlot); }

LoaderOptions Options(std::vector<std::string> files, const BatchOptions& batch, int epochs = 1) {
  LoaderOptions options;
  options.files = std::move(files);
  options.stages = {{0, batch}};
  options.epochs = epochs;
  return options;
}

// Token t is t modulo 50,000, so that a slot's tokens tell where they are from; BOS where told.
std::vector<uint16_t> Numbered(int64_t size, const std::vector<int64_t>& bos = {}) {
  std::vector<uint16_t> tokens(size);
  for (int64_t t = 0; t < size; ++t) tokens[t] = static_cast<uint16_t>(t % 50'000);
  for (const int64_t b : bos) tokens[b] = kGpt2Bos;
  return tokens;
}

// How many batches a shard of so many tokens holds, and where the last one ends.
struct Counted {
  int64_t batches = 0;
  int64_t end = 0;
};
Counted Count(const BatchOptions& options, int64_t tokens) {
  Counted counted;
  while (true) {
    const auto plan = PlanBatch(options, {}, tokens, counted.end);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok() || !*plan) return counted;
    counted.end = (*plan)->next_document;
    ++counted.batches;
  }
}

TEST(Stream, T2_06_BatchesOfAShard) {
  const Counted record = Count(RecordBatch(), 100'000'000);
  EXPECT_EQ(record.batches, 190);
  EXPECT_EQ(record.end, 99'614'720);
  EXPECT_EQ(100'000'000 - record.end, 385'280);
  EXPECT_EQ(Count(RecordBatch(), 524'288 + 1).batches, 0);
  EXPECT_EQ(Count(RecordBatch(), 524'288 + 2).batches, 1);
  EXPECT_EQ(ShardTokensOfBatch(RecordBatch()), 524'288 + 2);
  EXPECT_EQ(Count(RecordBatch(), 2 * 524'288 + 1).batches, 1);
  EXPECT_EQ(Count(RecordBatch(), 2 * 524'288 + 2).batches, 2);
}

// The next call after the last batch of a shard begins the next file at its front, and what was
// left is dropped and counted.
TEST(Stream, T2_06_NextFileBeginsAtItsFront) {
  // Batches of 12: a third needs 36 + 2 tokens, a first 12 + 2.
  const std::vector<uint16_t> a = Numbered(38), b = Numbered(37), c = Numbered(13);
  const LoaderOptions options =
      Options({Write("s38", a), Write("s37", b), Write("s13", c)}, Stream(3, 4, 8));
  const std::unique_ptr<TrainLoader> loader = Open(options);
  EXPECT_TRUE(loader->CheckEnough(5).ok());
  ExpectError(loader->CheckEnough(6), absl::StatusCode::kOutOfRange,
              {"6 steps need 72 training tokens", "leave 5 steps with 60 tokens", "at most 5"});
  absl::Status end;
  const std::vector<Step> steps = Drain(*loader, &end);
  ExpectError(end, absl::StatusCode::kOutOfRange, {"used up"});
  ASSERT_EQ(steps.size(), 5u);
  const LoaderState after[] = {{0, 0, 12}, {0, 0, 24}, {0, 0, 36}, {0, 1, 12}, {0, 1, 24}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steps[i].after, after[i]) << i;
    EXPECT_EQ(steps[i].batch->slots[0].inputs[0], after[i].next_document - 12) << i;
  }
  const LoaderStats stats = loader->Stats();
  EXPECT_EQ(stats.batches, 5);
  EXPECT_EQ(stats.tokens_at_shard_ends, 38 - 36);  // of those before the last batch
  EXPECT_EQ(stats.tokens_before_first_bos, 0);
  EXPECT_EQ(stats.documents.documents_truncated, 0);
  EXPECT_EQ(stats.documents.tokens_truncated, 0);
  EXPECT_EQ(stats.documents.tokens_cut, 0);
}

TEST(Stream, T2_07_Slices) {
  const std::vector<uint16_t> tokens = Numbered(524'288 + 2);
  const std::unique_ptr<TrainLoader> loader =
      Open(Options({Write("record", tokens)}, RecordBatch()));
  const auto batch = loader->Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  const std::vector<SlotBatch>& slots = (*batch)->slots;
  ASSERT_EQ(slots.size(), 8u);
  for (int64_t s = 0; s < 8; ++s) {
    const auto begin = tokens.begin() + s * kRecordSlot;
    EXPECT_EQ(slots[s].inputs, std::vector<int32_t>(begin, begin + kRecordSlot)) << s;
    EXPECT_EQ(slots[s].targets, std::vector<int32_t>(begin + 1, begin + 1 + kRecordSlot)) << s;
  }
  for (size_t s = 1; s < 8; ++s) {
    EXPECT_EQ(slots[s - 1].targets.back(), slots[s].inputs.front()) << s;
  }
  EXPECT_EQ(slots[3].inputs.front(), 196'608 % 50'000);
  EXPECT_EQ(slots[3].inputs.back(), 262'143 % 50'000);
  EXPECT_EQ(slots[3].targets.back(), 262'144 % 50'000);
  EXPECT_EQ(loader->State(), (LoaderState{0, 0, 524'288}));
  EXPECT_EQ(loader->Next().status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Stream, T2_08_FilesOfTheWholeRun) {
  int64_t file = 0, at = 0;
  for (int step = 0; step < 6450; ++step) {
    auto plan = PlanBatch(RecordBatch(), {}, 100'000'000, at);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (!*plan) {
      EXPECT_EQ(step % 190, 0);
      ++file;
      plan = PlanBatch(RecordBatch(), {}, 100'000'000, 0);
      ASSERT_TRUE(plan.ok() && *plan);
    }
    at = (*plan)->next_document;
  }
  EXPECT_EQ(file, 33);  // the 34th
  EXPECT_EQ(at, 180 * 524'288);
}

// Tokens 0 to 10,485,760 in 40 slots, whatever comes after them.
TEST(Stream, T2_08_ValidationReadsTheFront) {
  constexpr int64_t kTokens = 262'144;
  std::vector<uint16_t> tokens = Numbered(10'485'760 + 10'000);
  for (size_t t = 0; t < tokens.size(); t += 700) tokens[t] = kGpt2Bos;
  const auto stream = ValidationStream::Create({Write("val", tokens)}, 40, kTokens, 0, TokenMap());
  ASSERT_TRUE(stream.ok()) << stream.status();
  // The same tokens as the first batch of a stream of such slots.
  const BatchOptions as_batch = Stream(40, kTokens, stream->max_documents());
  const auto plan = PlanBatch(as_batch, BosPositions(tokens), tokens.size(), 0);
  ASSERT_TRUE(plan.ok() && *plan) << plan.status();
  const GlobalBatch batch = BuildBatch(as_batch, **plan, tokens, TokenMap());
  for (const int n : {0, 1, 8, 39}) {
    const SlotBatch slot = stream->Slot(n);
    EXPECT_EQ(slot.inputs.front(), tokens[n * kTokens]) << n;
    EXPECT_EQ(slot.inputs, batch.slots[n].inputs) << n;
    EXPECT_EQ(slot.targets, batch.slots[n].targets) << n;
    EXPECT_EQ(slot.boundaries, batch.slots[n].boundaries) << n;
  }
  EXPECT_EQ(stream->Slot(39).targets.back(), tokens[10'485'760]);
}

// Document 0 is what comes before the first BOS, and a BOS belongs to the document it opens: the
// number of a token's document is that of the BOS up to it in its slot.
TEST(Stream, Boundaries) {
  //                                       slot 0          slot 1   slot 2 has none
  const std::vector<int64_t> bos = {0, 3, 4, 9, /**/ 12, 19, /**/ 30};
  const std::vector<uint16_t> tokens = Numbered(32, bos);
  const BatchOptions options = Stream(3, 10, 8);
  const auto plan = PlanBatch(options, bos, 32, 0);
  ASSERT_TRUE(plan.ok() && *plan) << plan.status();
  EXPECT_EQ((*plan)->stats.documents, 4 + 3 + 1);
  const GlobalBatch batch = BuildBatch(options, **plan, tokens, TokenMap());
  ASSERT_EQ(batch.slots.size(), 3u);
  EXPECT_EQ(batch.slots[0].boundaries, (std::vector<int32_t>{0, 0, 3, 4, 9, 10, 10, 10}));
  EXPECT_EQ(batch.slots[1].boundaries, (std::vector<int32_t>{0, 2, 9, 10, 10, 10, 10, 10}));
  EXPECT_EQ(batch.slots[2].boundaries, (std::vector<int32_t>{0, 10, 10, 10, 10, 10, 10, 10}));
  for (int s = 0; s < 3; ++s) {
    const SlotBatch& slot = batch.slots[s];
    int64_t document = 0;
    for (int32_t t = 0; t < 10; ++t) {
      if (slot.inputs[t] == kGpt2Bos) ++document;
      const auto after = std::upper_bound(slot.boundaries.begin(), slot.boundaries.end(), t);
      EXPECT_EQ(after - slot.boundaries.begin() - 1, document) << s << " " << t;
    }
  }
}

TEST(Stream, TooManyDocumentsNamesSlotAndFile) {
  const std::vector<int64_t> bos = {11, 12, 13};
  const std::string path = Write("crowded", Numbered(40, bos));
  // Slot 1 has 4 documents: a table of 5 holds them.
  EXPECT_TRUE(Open(Options({path}, Stream(3, 10, 5)))->Next().ok());
  const std::unique_ptr<TrainLoader> loader = Open(Options({path}, Stream(3, 10, 4)));
  for (const absl::Status& status : {loader->Next().status(), loader->CheckEnough(1)}) {
    ExpectError(status, absl::StatusCode::kInvalidArgument,
                {path, "slot 1", "starts at token 0", "more than 3 documents", "10 tokens",
                 "raise the recipe's max_documents"});
  }
}

TEST(Stream, DefaultLengthOfTheTable) {
  EXPECT_EQ(MaxDocuments(RecordBatch()), 512);
  EXPECT_EQ(DefaultMaxDocuments(262'144, BatchMode::kStream), 2048);
  EXPECT_EQ(DefaultMaxDocuments(64, BatchMode::kStream), 128);
  EXPECT_EQ(MaxDocuments(Stream(8, kRecordSlot, 300)), 300);
}

// Shards of which one has no BOS at all: part of one long document.
LoaderOptions ThreeShards(int epochs) {
  return Options({Write("a", RandomTokens(2000, 1)), Write("none", Numbered(700)),
                  Write("c", RandomTokens(900, 3))},
                 Stream(4, 32, 64), epochs);
}

// At every point: within shards, at their ends and at the ends of epochs.
TEST(Stream, ResumesWithTheSameBatches) {
  const LoaderOptions options = ThreeShards(2);
  absl::Status end;
  const std::vector<Step> steps = Drain(*Open(options), &end);
  ExpectError(end, absl::StatusCode::kOutOfRange, {"used up", "3 files", "2 epochs"});
  ASSERT_EQ(steps.size(), 2u * (15 + 5 + 7));
  ExpectResumes(options, steps);
}

// Every token up to the last batch is an input or counted as left out.
TEST(Stream, CountsWhatIsLeftOut) {
  const std::unique_ptr<TrainLoader> loader = Open(ThreeShards(1));
  absl::Status end;
  const std::vector<Step> steps = Drain(*loader, &end);
  int64_t documents = 0;
  for (const Step& step : steps) documents += step.batch->stats.documents;
  const LoaderStats stats = loader->Stats();
  EXPECT_EQ(stats.batches, static_cast<int64_t>(steps.size()));
  EXPECT_EQ(stats.documents.documents, documents);
  EXPECT_EQ(stats.batches * 4 * 32 + stats.tokens_at_shard_ends,
            2000 + 700 + loader->State().next_document);
}

TEST(Stream, SmallShards) {
  const std::string exact = Write("exact", Numbered(130)), small = Write("small", Numbered(129));
  const std::unique_ptr<TrainLoader> loader =
      Open(Options({exact, small, exact}, Stream(4, 32, 8)));
  absl::Status end;
  EXPECT_EQ(Drain(*loader, &end).size(), 2u);
  EXPECT_EQ(loader->Stats().shards_skipped, 1);
  ExpectError(TrainLoader::Create(Options({small}, Stream(4, 32, 8)), {}, 0).status(),
              absl::StatusCode::kOutOfRange, {small, "needs 130 tokens", "holds 129"});
}

TEST(Stream, RefusesAPositionOfOtherData) {
  const LoaderOptions options = ThreeShards(1);
  EXPECT_TRUE(TrainLoader::Create(options, {0, 1, 700}, 0).ok());
  for (const LoaderState start : {LoaderState{0, 1, 701}, LoaderState{0, 1, -1}}) {
    ExpectError(TrainLoader::Create(options, start, 0).status(), absl::StatusCode::kInvalidArgument,
                {options.files[1], "token", "holds 700 tokens", "resume"});
  }
}

TEST(Stream, StagesHaveOneMode) {
  LoaderOptions options = ThreeShards(1);
  options.stages.push_back({5, {.slots = 4, .slot_tokens = 32, .max_doc_len = 24}});
  ExpectError(TrainLoader::Create(options, {}, 0).status(), absl::StatusCode::kInvalidArgument,
              {"stage 1", "differ in mode"});
}

// A larger batch begins where the smaller one before it ended.
TEST(Stream, StagesGoOnAtTheSameToken) {
  LoaderOptions options = ThreeShards(1);
  options.stages.push_back({3, Stream(8, 32, 64)});
  const std::unique_ptr<TrainLoader> loader = Open(options);
  absl::Status end;
  const std::vector<Step> steps = Drain(*loader, &end);
  // 2000 tokens: 3 x 128, then 6 x 256 of the 1616 left; 700: 2; 900: 3.
  ASSERT_EQ(steps.size(), 3u + 6 + 2 + 3);
  EXPECT_EQ(steps[2].after, (LoaderState{0, 0, 384}));
  EXPECT_EQ(steps[3].after, (LoaderState{0, 0, 640}));
  EXPECT_EQ(steps[3].batch->slots.size(), 8u);
  EXPECT_TRUE(loader->CheckEnough(14).ok());
  EXPECT_FALSE(loader->CheckEnough(15).ok());
}

TEST(Stream, UnusedDocumentLengthMayBeLeftOut) {
  EXPECT_TRUE(ValidateBatchOptions(Stream(1, 1)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Stream(0, 1)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Stream(1, 0)).ok());
  EXPECT_FALSE(ValidateBatchOptions(Stream(1, 1, 1)).ok());
}

}  // namespace
}  // namespace data
