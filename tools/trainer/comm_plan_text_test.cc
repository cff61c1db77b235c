#include "tools/trainer/comm_plan_text.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

CommPlanFlags AtRate(int64_t ranks, double gbps) {
  CommPlanFlags flags;
  flags.ranks = ranks;
  flags.link_gbps = gbps;
  flags.tflops = 400;
  return flags;
}

TrainConfig Full(const std::string& record) {
  TrainConfig config;
  config.recipe = *FindRecipe(record, "full", 50304);
  return config;
}

// Of the row that sums all up: its exposed ms.
double Exposed(const std::string& text) {
  const size_t row = text.find("\nall ") + 1;
  const std::vector<std::string> columns =
      absl::StrSplit(text.substr(row, text.find('\n', row) - row), ' ', absl::SkipEmpty());
  CHECK_EQ(columns.size(), 7u) << text;  // "all", then numbers
  double value = -1;
  CHECK(absl::SimpleAtod(columns[4], &value)) << columns[4];
  return value;
}

TEST(CommPlanText, SixtyFourRanksOfEveryRecord) {
  for (const char* record :
       {"muon_custom_sizing", "fix_muon_lr", "unified_optimizers", "anvil", "record7"}) {
    const absl::StatusOr<std::string> slow = CommPlanText(Full(record), AtRate(64, 100));
    ASSERT_TRUE(slow.ok()) << slow.status();
    EXPECT_TRUE(absl::StrContains(*slow, "on 64 ranks")) << *slow;
    EXPECT_TRUE(absl::StrContains(*slow, "--slots=64")) << *slow;
    EXPECT_TRUE(absl::StrContains(*slow, "reduce_scatter")) << *slow;
    const absl::StatusOr<std::string> fast = CommPlanText(Full(record), AtRate(64, 800));
    ASSERT_TRUE(fast.ok()) << fast.status();
    EXPECT_GT(Exposed(*slow), Exposed(*fast));
    EXPECT_GT(Exposed(*fast), 0);
    const absl::StatusOr<std::string> free =
        CommPlanText(Full(record), AtRate(64, std::numeric_limits<double>::infinity()));
    ASSERT_TRUE(free.ok()) << free.status();
    EXPECT_EQ(Exposed(*free), 0);
  }
}

TEST(CommPlanText, UnequalSlotsWait) {
  const absl::StatusOr<std::string> text = CommPlanText(Full("fix_muon_lr"), AtRate(3, 100));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(absl::StrContains(*text, "ranks with 2 slots wait")) << *text;
}

// From a real run's trace, of two ranks, for others.
TEST(CommPlanText, FromATracesPhases) {
  for (const char* record :
       {"muon_custom_sizing", "fix_muon_lr", "unified_optimizers", "anvil", "record7"}) {
    const std::string folder = FreshFolder(std::string("comm_plan_") + record);
    TrainConfig config = TestConfig(folder, 4, {}, record);
    config.deterministic = false;
    config.world_size = 2;
    RunTrace trace({.skip = 1, .steps = 3});
    ASSERT_TRUE(RunTraining(config, &trace).status.ok());
    CommPlanFlags flags = AtRate(4, 10);
    flags.tflops = 0;
    flags.phases = folder + "/trace.json";
    ASSERT_TRUE(trace.Write(flags.phases).ok());
    const absl::StatusOr<std::string> text = CommPlanText(config, flags);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_TRUE(absl::StrContains(*text, "2 ranks on cpu")) << *text;
    EXPECT_GT(Exposed(*text), 0);
    TrainConfig other = config;
    other.recipe.preset = "full";
    const absl::Status refused = CommPlanText(other, flags).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), "demo; this is")) << refused;
  }
}

TEST(CommPlanText, RefusesWithTheFlagsName) {
  const auto refused = [](const CommPlanFlags& flags, const char* text,
                          bool deterministic = false) {
    TrainConfig config = Full("fix_muon_lr");
    config.deterministic = deterministic;
    const absl::Status status = CommPlanText(config, flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  };
  refused(AtRate(-3, 100), "--ranks=-3");
  refused(AtRate(64, 0), "--link_gbps=0");
  refused(AtRate(3000, 100), "--batch_tokens");
  refused(AtRate(64, 100), "--deterministic", true);
  CommPlanFlags flags = AtRate(64, 100);
  flags.latency_us = -1;
  refused(flags, "--latency_us=-1");
  flags = AtRate(64, 100);
  flags.link_shape = "star";
  refused(flags, "--link_shape=star");
  flags = AtRate(64, 100);
  flags.tflops = 0;
  refused(flags, "--phases");
  flags.tflops = -1;
  refused(flags, "--tflops=-1");
  flags = AtRate(64, 100);
  flags.phases = "some.json";
  refused(flags, "either");
}

}  // namespace
}  // namespace tools
