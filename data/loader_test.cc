#include "data/loader.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/loader_testing.h"
#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {
namespace {

constexpr int kSlots = 4;
constexpr int64_t kSlotTokens = 32;

LoaderOptions Options(std::vector<std::string> files, int epochs = 1) {
  LoaderOptions options;
  options.files = std::move(files);
  options.stages = {{0, {kSlots, kSlotTokens, /*max_doc_len=*/24, /*max_documents=*/64}}};
  options.epochs = epochs;
  return options;
}

LoaderOptions ThreeShards(int epochs) {
  return Options({Write("a", RandomTokens(2000, 1)), Write("b", RandomTokens(1500, 2)),
                  Write("c", RandomTokens(2500, 3))},
                 epochs);
}

TEST(Loader, IsTheBatcherShardByShard) {
  const LoaderOptions options = ThreeShards(2);
  absl::Status end;
  const std::vector<Step> steps = Drain(*Open(options), &end);
  size_t at = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int file = 0; file < 3; ++file) {
      const auto shard = Shard::Open(options.files[file]);
      ASSERT_TRUE(shard.ok());
      const std::vector<int64_t> bos = BosPositions(shard->tokens());
      int64_t next = 0;
      while (true) {
        const auto plan = PlanBatch(options.stages[0].batch, bos, shard->tokens().size(), next);
        ASSERT_TRUE(plan.ok()) << plan.status();
        if (!*plan) break;
        next = (*plan)->next_document;
        ASSERT_LT(at, steps.size());
        EXPECT_TRUE(Equal(*steps[at].batch, BuildBatch(options.stages[0].batch, **plan,
                                                       shard->tokens(), options.token_map)));
        EXPECT_EQ(steps[at].after, (LoaderState{epoch, file, next}));
        ++at;
      }
    }
  }
  EXPECT_EQ(at, steps.size());
  EXPECT_GT(at, 20u);
}

// At every point: within shards, at their ends and at the ends of epochs.
TEST(Loader, D14_D15_ResumesWithTheSameBatches) {
  const LoaderOptions options = ThreeShards(2);
  absl::Status end;
  const std::vector<Step> steps = Drain(*Open(options), &end);
  ExpectError(end, absl::StatusCode::kOutOfRange, {"used up", "3 files", "2 epochs", "--epochs"});
  ASSERT_GT(steps.size(), 20u);
  ExpectResumes(options, steps);
}

// At any distance, over the ends of shards and epochs, and again and again; nothing is lost by it.
TEST(Loader, PeeksAtTheNextBatches) {
  const LoaderOptions options = ThreeShards(2);
  absl::Status end;
  const std::vector<Step> steps = Drain(*Open(options), &end);
  const std::unique_ptr<TrainLoader> loader = Open(options);
  for (size_t at = 0; at < steps.size(); ++at) {
    const LoaderState before = loader->State();
    for (const size_t ahead : {size_t{4}, size_t{0}, size_t{3}, at % 7}) {
      const auto batch = loader->Peek(static_cast<int64_t>(ahead));
      if (at + ahead < steps.size()) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        EXPECT_TRUE(Equal(**batch, *steps[at + ahead].batch)) << at << " + " << ahead;
      } else {
        EXPECT_EQ(batch.status(), end);
      }
    }
    EXPECT_EQ(loader->State(), before);
    const auto next = loader->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(Equal(**next, *steps[at].batch));
    EXPECT_EQ(loader->State(), steps[at].after);
  }
  EXPECT_EQ(loader->Peek(0).status(), end);
  EXPECT_EQ(loader->Next().status(), end);
}

TEST(Loader, RefusesAPositionOfOtherData) {
  const LoaderOptions options = ThreeShards(1);
  for (const LoaderState start :
       {LoaderState{1, 0, 0}, LoaderState{0, 3, 0}, LoaderState{-1, 0, 0}, LoaderState{0, -1, 0},
        LoaderState{0, 1, 100'000}, LoaderState{0, 1, -1}}) {
    ExpectError(TrainLoader::Create(options, start, 0).status(), absl::StatusCode::kInvalidArgument,
                {"resume"});
  }
}

TEST(Loader, D1_ChecksAllHeadersFirst) {
  LoaderOptions options = ThreeShards(1);
  std::filesystem::resize_file(options.files[1], 1024 + 2 * 1499);
  ExpectError(TrainLoader::Create(options, {}, 0).status(), absl::StatusCode::kDataLoss,
              {options.files[1], "1500 tokens", "2998 bytes"});
  options.files[1] = Path("empty");
  std::ofstream(options.files[1], std::ios::trunc).close();
  ExpectError(TrainLoader::Create(options, {}, 0).status(), absl::StatusCode::kDataLoss,
              {options.files[1], "0 bytes"});  // D10
  options.files.clear();
  EXPECT_FALSE(TrainLoader::Create(options, {}, 0).ok());
}

TEST(Loader, D2_D3_CountsBeforeTheFirstStep) {
  const LoaderOptions one = Options({Write("one", RandomTokens(3000, 4))});
  absl::Status end;
  const int64_t steps = static_cast<int64_t>(Drain(*Open(one), &end).size());
  ASSERT_GT(steps, 5);
  const std::unique_ptr<TrainLoader> loader = Open(one);
  EXPECT_TRUE(loader->CheckEnough(steps).ok());
  ExpectError(loader->CheckEnough(steps + 1), absl::StatusCode::kOutOfRange,
              {absl::StrCat("need ", (steps + 1) * kSlots * kSlotTokens), "hold 3000",
               absl::StrCat("at most ", steps), "--epochs", "--steps"});
  EXPECT_TRUE(loader->Next().ok()) << "counting does not move the loader";
  LoaderOptions wrapped = one;
  wrapped.epochs = 3;
  EXPECT_TRUE(Open(wrapped)->CheckEnough(3 * steps).ok());
  EXPECT_FALSE(Open(wrapped)->CheckEnough(3 * steps + 1).ok());
}

TEST(Loader, D6_TooManyDocuments) {
  LoaderOptions options = ThreeShards(1);
  options.stages[0].batch.max_documents = 2;
  const std::unique_ptr<TrainLoader> loader = Open(options);
  for (int again = 0; again < 2; ++again) {
    ExpectError(loader->Next().status(), absl::StatusCode::kInvalidArgument,
                {options.files[0], "more than 1 documents"});
  }
  EXPECT_FALSE(loader->CheckEnough(1).ok());
}

TEST(Loader, D7_ShardWithoutBos) {
  const std::string bad = Write("no_bos", std::vector<uint16_t>(400, 9));
  const LoaderOptions first = Options({bad, Write("ok", RandomTokens(2000, 5))});
  ExpectError(TrainLoader::Create(first, {}, 0).status(), absl::StatusCode::kInvalidArgument,
              {bad, "no BOS", "400 tokens"});
  const LoaderOptions second = Options({first.files[1], bad});
  const std::unique_ptr<TrainLoader> loader = Open(second);
  ExpectError(loader->CheckEnough(1000), absl::StatusCode::kInvalidArgument, {bad});
  absl::Status end;
  EXPECT_GT(Drain(*loader, &end).size(), 5u);
  ExpectError(end, absl::StatusCode::kInvalidArgument, {bad, "no BOS"});
}

TEST(Loader, D8_CountsTokens) {
  const LoaderOptions options = ThreeShards(1);
  const std::unique_ptr<TrainLoader> loader = Open(options);
  absl::Status end;
  const std::vector<Step> steps = Drain(*loader, &end);
  BatchStats sum;
  for (const Step& step : steps) {
    sum.documents_truncated += step.batch->stats.documents_truncated;
    sum.tokens_truncated += step.batch->stats.tokens_truncated;
    sum.tokens_cut += step.batch->stats.tokens_cut;
  }
  const LoaderStats stats = loader->Stats();
  EXPECT_EQ(stats.batches, static_cast<int64_t>(steps.size()));
  EXPECT_EQ(stats.tokens_before_first_bos, 3 * 7);
  EXPECT_EQ(stats.documents.documents_truncated, sum.documents_truncated);
  EXPECT_EQ(stats.documents.tokens_truncated, sum.tokens_truncated);
  EXPECT_GT(stats.documents.tokens_truncated, 0);
  // Every token of the shards up to the last batch is used or counted as left out.
  const auto last = Shard::Open(options.files[2]);
  ASSERT_TRUE(last.ok());
  const int64_t used_up = 2000 + 1500 + BosPositions(last->tokens())[loader->State().next_document];
  EXPECT_EQ(stats.batches * kSlots * (kSlotTokens + 1) + stats.tokens_before_first_bos +
                sum.tokens_truncated + sum.tokens_cut + stats.tokens_at_shard_ends,
            used_up);
}

TEST(Loader, D10_SmallShards) {
  const std::string small = Write("small", RandomTokens(100, 6));
  const std::string large = Write("large", RandomTokens(2000, 7));
  absl::Status end;
  const size_t alone = Drain(*Open(Options({large})), &end).size();
  const std::unique_ptr<TrainLoader> loader = Open(Options({large, small, large}));
  EXPECT_EQ(Drain(*loader, &end).size(), 2 * alone);
  EXPECT_EQ(loader->Stats().shards_skipped, 1);
  ExpectError(TrainLoader::Create(Options({small, small}), {}, 0).status(),
              absl::StatusCode::kOutOfRange, {small, "needs 132 tokens", "holds 100"});
}

// Enough tokens, but in one document: no batch in any number of epochs.
TEST(Loader, D10_NoBatchAtAll) {
  std::vector<uint16_t> tokens(1000, 5);
  tokens[0] = kGpt2Bos;
  const std::unique_ptr<TrainLoader> loader =
      Open(Options({Write("one_document", tokens)}, 1'000'000'000));
  ExpectError(loader->Next().status(), absl::StatusCode::kOutOfRange, {"0 batches"});
  ExpectError(loader->CheckEnough(1), absl::StatusCode::kOutOfRange, {"at most 0"});
}

TEST(Loader, D12_TokenOutsideTheVocabulary) {
  std::vector<uint16_t> tokens = RandomTokens(2000, 8);
  tokens[1999] = 60000;
  const std::string bad = Write("bad_token", tokens);
  ExpectError(TrainLoader::Create(Options({bad}), {}, 0).status(), absl::StatusCode::kDataLoss,
              {bad, "60000", "position 1999"});
  const std::unique_ptr<TrainLoader> loader =
      Open(Options({Write("good", RandomTokens(2000, 9)), bad}));
  absl::Status end;
  EXPECT_GT(Drain(*loader, &end).size(), 5u);
  ExpectError(end, absl::StatusCode::kDataLoss, {bad});
}

// The reader is stopped at whatever it does: starting, waiting for room, or done.
TEST(Loader, GoesAwayAtAnyTime) {
  const LoaderOptions options = ThreeShards(1000);
  for (int taken = 0; taken < 40; ++taken) {
    const std::unique_ptr<TrainLoader> loader = Open(options);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader->Next().ok());
    if (taken % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// With data for longer than any test: the reader does not run to the end first.
TEST(Loader, GoesAwayInTheMiddleOfTheData) {
  const LoaderOptions options = ThreeShards(1'000'000'000);
  const std::unique_ptr<TrainLoader> loader = Open(options);
  EXPECT_TRUE(loader->Next().ok());
}

}  // namespace
}  // namespace data
