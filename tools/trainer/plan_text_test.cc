#include "tools/trainer/plan_text.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/ops/elementwise.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/configure.h"
#include "tools/trainer/rank_memory.h"

namespace tools {
namespace {

constexpr double kGiB = int64_t{1} << 30;

// The record at full size on a named card, without a card and without shards.
Configured Planned(const std::string& card, const std::string& record = "unified_optimizers",
                   TrackFlags flags = {}) {
  flags.record = record;
  flags.preset = "full";
  flags.plan = true;
  flags.card = card;
  absl::StatusOr<Configured> configured = Configure(flags);
  EXPECT_TRUE(configured.ok()) << configured.status();
  return *std::move(configured);
}

std::string Text(const Configured& configured) {
  const absl::StatusOr<std::string> text = PlanText(configured);
  EXPECT_TRUE(text.ok()) << text.status();
  return *text;
}

TEST(PlanText, ForACardThatIsNotHere) {
  const std::string text = Text(Planned("h100-80gb"));
  for (const char* part : {"273,384,575 parameters", "card h100-80gb, compute capability 9.0",
                           "holds the plan", "activations, 2 slots a pass", "smallest card"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << "\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "cannot run it")) << text;
}

TEST(PlanText, SaysWhatTheCardLacks) {
  const std::string small = Text(Planned("rtx4090-24gb"));
  EXPECT_TRUE(absl::StrContains(small, "for the plan")) << small;
  EXPECT_TRUE(absl::StrContains(small, "lacks")) << small;
  EXPECT_TRUE(absl::StrContains(small, "cannot run it: rtx4090-24gb")) << small;
  const std::string a100 = Text(Planned("a100-80gb"));
  EXPECT_TRUE(absl::StrContains(a100, "holds the plan")) << a100;
  EXPECT_TRUE(absl::StrContains(a100, "8-bit floats")) << a100;
  // Track 2's record has a bf16 head.
  const std::string track2 = Text(Planned("a100-80gb", "record7"));
  EXPECT_FALSE(absl::StrContains(track2, "cannot run it")) << track2;
}

TEST(PlanText, TheAssumedCardIsSaid) {
  Configured configured = Planned("h100-80gb");
  configured.card_note = "no GPU to ask";
  EXPECT_EQ(Text(configured).rfind("no GPU to ask\nrecord ", 0), size_t{0});
}

// What a program on an H200 plans with the ops themselves (docs/benchmarks.md, "Without a card").
TEST(PlanMemory, IsTheSameWithoutACard) {
  struct Case {
    int slots, slots_per_pass;
    int64_t val_tokens;
    double gib;
  };
  for (const Case& c :
       {Case{8, 2, 10485760, 39.64}, {32, 4, 10485760, 22.00}, {16, 1, 131072, 15.76}}) {
    TrackFlags flags;
    flags.batch_tokens = 393216;
    flags.slots = c.slots;
    flags.slots_per_pass = c.slots_per_pass;
    flags.val_tokens = c.val_tokens;
    const Configured configured = Planned("h200-141gb", "unified_optimizers", flags);
    const absl::StatusOr<MemoryPlan> plan =
        PlanMemory(configured.config, *MakePlanningQueue(*configured.card));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_NEAR(plan->total / kGiB, c.gib, 0.005) << c.slots;
  }
}

// Hopper has a kernel that needs no transposed copy of the head's fp8 gradient.
TEST(PlanMemory, OtherCardsHoldAnotherCopy) {
  const Configured hopper = Planned("h100-80gb"), ada = Planned("l40s-48gb");
  const absl::StatusOr<MemoryPlan> less =
      PlanMemory(hopper.config, *MakePlanningQueue(*hopper.card));
  const absl::StatusOr<MemoryPlan> more = PlanMemory(ada.config, *MakePlanningQueue(*ada.card));
  ASSERT_TRUE(less.ok() && more.ok()) << less.status() << more.status();
  EXPECT_EQ(more->total - less->total, int64_t{24576} * 50304);
}

TEST(Cards, GrowFromNameToName) {
  double last = 0;
  for (const Card& card : NamedCards()) {
    EXPECT_GE(card.memory_gib, last) << card.name;
    last = card.memory_gib;
    EXPECT_TRUE(FindCard(card.name).ok());
    EXPECT_TRUE(absl::StrContains(FindCard("none").status().message(), card.name));
    EXPECT_GT(kernels::SharedBytesPerBlock(card.capability), 0) << card.name;
  }
  EXPECT_EQ(SmallestCard(20), "24 GB");
  EXPECT_EQ(SmallestCard(40), "48 GB");
  EXPECT_EQ(SmallestCard(77.85), "80 GB");
  EXPECT_EQ(SmallestCard(77.86), "141 GB");
  EXPECT_EQ(SmallestCard(1000), "none");
}

TEST(PlanningQueueDeathTest, ComputesNothing) {
  const auto queue = MakePlanningQueue(*FindCard("h100-80gb"));
  EXPECT_DEATH(queue->Synchronize(), "computes nothing");
  float value = 1;
  const kernels::Tensor x(&value, kernels::DType::kF32, {1});
  EXPECT_DEATH(kernels::FillZero(x, *queue), "computes nothing");
}

}  // namespace
}  // namespace tools
