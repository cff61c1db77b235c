// Batches whose shape changes between steps.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/loader.h"
#include "data/loader_testing.h"
#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {
namespace {

BatchOptions Shape(int slots, int64_t slot_tokens) {
  return {slots, slot_tokens, /*max_doc_len=*/24, /*max_documents=*/0};
}

// Batches of 66, 132 and 260 tokens of a shard.
std::vector<LoaderStage> Growing(int64_t second, int64_t third) {
  return {{0, Shape(2, 32)}, {second, Shape(4, 32)}, {third, Shape(4, 64)}};
}

LoaderOptions Options(std::vector<std::string> files, std::vector<LoaderStage> stages, int epochs) {
  LoaderOptions options;
  options.files = std::move(files);
  options.stages = std::move(stages);
  options.epochs = epochs;
  return options;
}

LoaderOptions ThreeShards(std::vector<LoaderStage> stages, int epochs) {
  static const std::vector<std::string> files = {Write("stages_a", RandomTokens(1100, 1)),
                                                 Write("stages_b", RandomTokens(700, 2)),
                                                 Write("stages_c", RandomTokens(1300, 3))};
  return Options(files, std::move(stages), epochs);
}

const BatchOptions& ShapeOf(const LoaderOptions& options, int64_t step) {
  const BatchOptions* shape = nullptr;
  for (const LoaderStage& stage : options.stages) {
    if (stage.first_step <= step) shape = &stage.batch;
  }
  return *shape;
}

// The definition: each step asks for its own shape at the cursor, and for the same shape in the
// next shard if this one ends. `dropped`: steps that met the end of a shard.
std::vector<Step> Expected(const LoaderOptions& options, std::vector<int64_t>* dropped) {
  std::vector<Step> steps;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (int64_t file = 0; file < std::ssize(options.files); ++file) {
      const auto shard = Shard::Open(options.files[file]);
      EXPECT_TRUE(shard.ok());
      const std::vector<int64_t> bos = BosPositions(shard->tokens());
      int64_t next = 0;
      while (true) {
        const BatchOptions& shape = ShapeOf(options, std::ssize(steps));
        const auto plan = PlanBatch(shape, bos, std::ssize(shard->tokens()), next);
        EXPECT_TRUE(plan.ok()) << plan.status();
        if (!plan.ok() || !*plan) break;
        next = (*plan)->next_document;
        steps.push_back({std::make_shared<const GlobalBatch>(
                             BuildBatch(shape, **plan, shard->tokens(), options.token_map)),
                         LoaderState{epoch, file, next}});
      }
      dropped->push_back(std::ssize(steps));
    }
  }
  return steps;
}

void ExpectSame(const std::vector<Step>& actual, const std::vector<Step>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(Equal(*actual[i].batch, *expected[i].batch)) << i;
    ASSERT_EQ(actual[i].after, expected[i].after) << i;
  }
}

// Changes at every distance from the ends of shards and epochs, read-ahead included.
TEST(LoaderStages, ChangesOnTheVeryBatch) {
  int changes_at_shard_ends = 0;
  for (int64_t second = 1; second <= 24; ++second) {
    for (const int64_t third : {second + 1, second + 6}) {
      const LoaderOptions options = ThreeShards(Growing(second, third), 2);
      std::vector<int64_t> dropped;
      const std::vector<Step> expected = Expected(options, &dropped);
      ASSERT_GT(std::ssize(expected), third);
      absl::Status end;
      const std::unique_ptr<TrainLoader> loader = Open(options);
      ExpectSame(Drain(*loader, &end), expected);
      ExpectError(end, absl::StatusCode::kOutOfRange, {"used up"});
      EXPECT_EQ(expected[second - 1].batch->slots.size(), 2u);
      EXPECT_EQ(expected[second].batch->slots.size(), 4u);
      EXPECT_EQ(expected[third - 1].batch->slots[0].inputs.size(), 32u);
      EXPECT_EQ(expected[third].batch->slots[0].inputs.size(), 64u);
      changes_at_shard_ends += static_cast<int>(std::count(dropped.begin(), dropped.end(), second) +
                                                std::count(dropped.begin(), dropped.end(), third));
      EXPECT_TRUE(loader->CheckEnough(std::ssize(expected)).ok());
      EXPECT_FALSE(loader->CheckEnough(std::ssize(expected) + 1).ok());
    }
  }
  EXPECT_GT(changes_at_shard_ends, 3);
}

// The larger batch of the change does not fit in a shard where one more of the old size would.
TEST(LoaderStages, AChangeEndsAShardEarlier) {
  std::vector<uint16_t> tokens(10 * 11, 7);
  for (size_t at = 0; at < tokens.size(); at += 11) tokens[at] = kGpt2Bos;
  const std::string shard = Write("early_end", tokens);
  const LoaderOptions options = Options({shard, shard}, {{0, Shape(1, 10)}, {8, Shape(3, 10)}}, 1);
  const std::unique_ptr<TrainLoader> loader = Open(options);
  absl::Status end;
  const std::vector<Step> steps = Drain(*loader, &end);
  ASSERT_EQ(steps.size(), 8u + 3u);
  EXPECT_EQ(steps[7].after, (LoaderState{0, 0, 8}));
  EXPECT_EQ(steps[8].after, (LoaderState{0, 1, 3}));
  EXPECT_EQ(loader->Stats().tokens_at_shard_ends, 2 * 11);  // of the first shard
  EXPECT_TRUE(loader->CheckEnough(11).ok());
  ExpectError(loader->CheckEnough(12), absl::StatusCode::kOutOfRange,
              {absl::StrCat("12 steps need ", 8 * 10 + 4 * 30),
               absl::StrCat("11 steps with ", 8 * 10 + 3 * 30), "at most 11"});
}

// Before, at and after changes, and everywhere else.
TEST(LoaderStages, D14_D15_ResumesWithTheSameBatches) {
  const LoaderOptions options = ThreeShards(Growing(6, 15), 2);
  absl::Status end;
  const std::vector<Step> steps = Drain(*Open(options), &end);
  ASSERT_GT(steps.size(), 20u);
  for (int64_t next = 1; next <= std::ssize(steps); ++next) {
    const std::unique_ptr<TrainLoader> loader = Open(options, steps[next - 1].after, next);
    const int64_t left = std::ssize(steps) - next;
    EXPECT_TRUE(loader->CheckEnough(left).ok()) << next;
    EXPECT_FALSE(loader->CheckEnough(left + 1).ok()) << next;
    ExpectSame(Drain(*loader, &end), {steps.begin() + next, steps.end()});
  }
}

// Shards that were counted in one stage count anew in the next, and where stages meet.
TEST(LoaderStages, CountsManyEpochsExactly) {
  for (const int64_t second : {29, 30, 61, 100}) {
    for (const int epochs : {1, 2, 7, 12}) {
      const LoaderOptions options = ThreeShards(Growing(second, second + 41), epochs);
      std::vector<int64_t> dropped;
      const int64_t steps = std::ssize(Expected(options, &dropped));
      const std::unique_ptr<TrainLoader> loader = Open(options);
      EXPECT_TRUE(loader->CheckEnough(steps).ok()) << second << " " << epochs;
      ExpectError(loader->CheckEnough(steps + 1), absl::StatusCode::kOutOfRange,
                  {absl::StrCat("at most ", steps)});
    }
  }
  // Quickly, too.
  EXPECT_TRUE(Open(ThreeShards(Growing(1000, 2000), 1'000'000'000))->CheckEnough(1'000'000).ok());
}

constexpr int64_t kSlotTokens[] = {16384, 32768, 49152};

// Documents of 150 to 3000 tokens, one of 5000 among the first; each token of a document tells
// where it stands in it.
std::vector<uint16_t> LongDocuments(int64_t size) {
  std::mt19937 random(12);
  std::vector<uint16_t> tokens;
  for (int document = 0; std::ssize(tokens) < size; ++document) {
    const int length = document == 3 ? 5000 : 150 + static_cast<int>(random() % 2850);
    tokens.push_back(kGpt2Bos);
    for (int i = 1; i < length; ++i) tokens.push_back(static_cast<uint16_t>(i));
  }
  return tokens;
}

LoaderOptions GrowingSlots(int slots) {
  std::vector<LoaderStage> stages;
  for (int i = 0; i < 3; ++i) {
    stages.push_back({2 * i * 8 / slots, {slots, kSlotTokens[i], 2048, /*max_documents=*/0}});
  }
  return Options({Write("growing_slots", LongDocuments(2'000'000))}, stages, 1);
}

TEST(LoaderStages, UO_09_UO_10_UO_11_TheShapesOfGrowingSlots) {
  const LoaderOptions options = GrowingSlots(8);
  const auto shard = Shard::Open(options.files[0]);
  ASSERT_TRUE(shard.ok());
  const std::vector<int64_t> bos = BosPositions(shard->tokens());
  const size_t table_lengths[] = {128, 128, 256};
  const std::unique_ptr<TrainLoader> loader = Open(options);
  int64_t cursor = 0;
  int longest = 0;
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t slot_tokens = kSlotTokens[step / 2];
    const auto batch = loader->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_EQ((*batch)->slots.size(), 8u);
    const auto plan =
        PlanBatch(options.stages[step / 2].batch, bos, std::ssize(shard->tokens()), cursor);
    ASSERT_TRUE(plan.ok() && plan->has_value());
    for (int k = 0; k < 8; ++k) {
      const SlotBatch& slot = (*batch)->slots[k];
      EXPECT_EQ(std::ssize(slot.inputs), slot_tokens);
      EXPECT_EQ(std::ssize(slot.targets), slot_tokens);
      ASSERT_EQ(slot.boundaries.size(), table_lengths[step / 2]);
      const std::vector<Piece>& pieces = (*plan)->slots[k];
      std::vector<int32_t> boundaries;
      int64_t length = 0;
      for (const Piece& piece : pieces) {
        EXPECT_LE(piece.end - piece.begin, 2048);
        boundaries.push_back(static_cast<int32_t>(length));
        length += piece.end - piece.begin;
      }
      EXPECT_EQ(length, slot_tokens + 1);  // 16385, 32769 or 49153
      boundaries.resize(table_lengths[step / 2], static_cast<int32_t>(slot_tokens));
      EXPECT_EQ(slot.boundaries, boundaries);
      for (const int32_t token : slot.inputs) {
        if (token != kGpt2Bos) longest = std::max(longest, token);
      }
    }
    cursor = (*plan)->next_document;
    EXPECT_EQ(loader->State(), (LoaderState{0, 0, cursor}));
  }
  // Of every document, also that of 5000 tokens, the first 2048: their last stands at 2047.
  EXPECT_EQ(longest, 2047);
  EXPECT_EQ(DefaultMaxDocuments(262144), 896);  // validation
}

// A rank that fills the slots one after the other sees those of eight ranks.
TEST(LoaderStages, UO_12_SlotsDoNotDependOnTheirNumberPerRequest) {
  const std::unique_ptr<TrainLoader> together = Open(GrowingSlots(8));
  const std::unique_ptr<TrainLoader> alone = Open(GrowingSlots(1));
  for (int step = 0; step < 6; ++step) {
    const auto batch = together->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    for (const SlotBatch& slot : (*batch)->slots) {
      const auto single = alone->Next();
      ASSERT_TRUE(single.ok()) << single.status();
      EXPECT_EQ((*single)->slots[0].inputs, slot.inputs) << step;
      EXPECT_EQ((*single)->slots[0].targets, slot.targets) << step;
      EXPECT_EQ((*single)->slots[0].boundaries, slot.boundaries) << step;
    }
    EXPECT_EQ(alone->State(), together->State()) << step;
  }
}

TEST(LoaderStages, RefusesStagesThatAreNone) {
  const auto create = [](std::vector<LoaderStage> stages) {
    return TrainLoader::Create(ThreeShards(std::move(stages), 1), {}, 0).status();
  };
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  ExpectError(create({}), invalid, {"first step is 0"});
  ExpectError(create({{1, Shape(2, 32)}}), invalid, {"first step is 0"});
  ExpectError(create({{0, Shape(2, 32)}, {5, Shape(4, 32)}, {5, Shape(4, 64)}}), invalid,
              {"stage 2", "at step 5", "ascend"});
  ExpectError(create({{0, Shape(2, 32)}, {5, Shape(4, 0)}}), invalid, {"tokens of a slot is 0"});
  EXPECT_TRUE(create(Growing(5, 6)).ok());
}

TEST(LoaderStages, D10_EveryStageThatIsLeftMustFitInAShard) {
  const LoaderOptions growing =
      ThreeShards({{0, Shape(2, 32)}, {5, Shape(4, 1000)}, {9, Shape(4, 32)}}, 1);
  ExpectError(TrainLoader::Create(growing, {}, 0).status(), absl::StatusCode::kOutOfRange,
              {growing.files[2], "needs 4004 tokens", "holds 1300"});
  EXPECT_FALSE(TrainLoader::Create(growing, {}, 8).ok());
  EXPECT_TRUE(TrainLoader::Create(growing, {}, 9).ok());
}

}  // namespace
}  // namespace data
