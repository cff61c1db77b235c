#include "tools/report/tables.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/report/groups.h"

namespace tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TrainingRun Finished(const std::string& name, const std::string& group, double loss, double seconds,
                     int64_t steps = 2285) {
  TrainingRun run;
  run.name = name;
  run.group = group;
  run.validations = {{0, 10.8258, 0.0, {}}, {steps, loss, 1000 * seconds, {}}};
  run.planned_steps = steps;
  return run;
}

// Losses that lie as close together as those of a record.
std::vector<TrainingRun> EightRuns(const std::string& group) {
  std::vector<TrainingRun> runs;
  for (const double loss : {3.2804, 3.2754, 3.2753, 3.2800, 3.2780, 3.2782, 3.2793, 3.2781}) {
    runs.push_back(Finished(absl::StrCat("run", runs.size()), group, loss, 139.5));
  }
  return runs;
}

TEST(SummarizeGroups, AsVerifyRecord) {
  const std::vector<GroupSummary> groups = SummarizeGroups(EightRuns("b"), 3.28);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].runs, 8);
  EXPECT_EQ(groups[0].steps, 2285);
  ASSERT_TRUE(groups[0].losses.has_value());
  EXPECT_NEAR(groups[0].losses->mean, 3.2780875, 1e-9);
  const TTest want = OneSampleTTest(*groups[0].losses, 3.28);
  EXPECT_EQ(groups[0].below_target->p_less, want.p_less);
  EXPECT_LT(want.p_less, 0.05);
  EXPECT_THAT(groups[0].notes, IsEmpty());
}

TEST(SummarizeGroups, WhoDoesNotCount) {
  std::vector<TrainingRun> runs = EightRuns("b");
  runs.push_back(Finished("nan", "b", std::nan(""), 100));
  runs.push_back(Finished("cut", "b", 1, 100));
  runs.back().planned_steps = 3000;
  runs.push_back(Finished("alone", "", 1, 100));
  const std::vector<GroupSummary> groups = SummarizeGroups(runs, 3.28);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].runs, 8);
  EXPECT_THAT(groups[0].notes, ElementsAre("nan does not count: its final loss is not finite",
                                           "cut does not count: it is not finished"));
}

TEST(SummarizeGroups, WhatIsNotPooled) {
  const std::vector<GroupSummary> lengths =
      SummarizeGroups({Finished("a", "g", 3, 1, 10), Finished("b", "g", 3, 1, 20)}, 3.28);
  EXPECT_FALSE(lengths[0].losses.has_value());
  EXPECT_THAT(lengths[0].notes,
              ElementsAre("not pooled: the runs have different lengths, 10 and 20 steps"));
  const std::vector<GroupSummary> single = SummarizeGroups({Finished("a", "g", 3, 1)}, 3.28);
  EXPECT_FALSE(single[0].losses.has_value());
  EXPECT_THAT(single[0].notes[0], HasSubstr("no statistics: 1 value"));
}

TEST(CompareGroups, WelchOfTheLaterAgainstTheEarlier) {
  std::vector<TrainingRun> runs = EightRuns("old");
  for (TrainingRun run : EightRuns("new")) {
    run.validations.back().loss -= 0.01;
    run.validations.back().train_ms = *run.validations.back().train_ms - 1000;
    runs.push_back(run);
  }
  const auto groups = SummarizeGroups(runs, 3.28);
  const std::vector<GroupComparison> comparisons = CompareGroups(groups);
  ASSERT_EQ(comparisons.size(), 1);
  EXPECT_EQ(comparisons[0].name, "new");
  EXPECT_EQ(comparisons[0].baseline, "old");
  EXPECT_NEAR(comparisons[0].losses.difference, -0.01, 1e-9);
  EXPECT_LT(comparisons[0].losses.p_less, 1e-6);
  ASSERT_TRUE(comparisons[0].times_s.has_value());
  EXPECT_TRUE(comparisons[0].times_s->no_variance);
  EXPECT_THAT(GroupTables(groups, 3.28), AllOf(HasSubstr("3.2781 ± 0.0019"), HasSubstr("-0.0100"),
                                               HasSubstr("-1.000 s"), HasSubstr("no variance")));
  EXPECT_EQ(GroupTables({}, 3.28), "");
}

TEST(RunsTable, Cells) {
  TrainingRun run = Finished("a<b", "", 3.2792, 149.8, 1680);
  run.peak_mib = 30760;
  std::string table = RunsTable({run}, 3.28);
  EXPECT_THAT(table,
              AllOf(HasSubstr("a&lt;b"), HasSubstr("<td>1,680</td>"), HasSubstr("<td>3.2792</td>"),
                    HasSubstr("2 min 29.8 s"), HasSubstr("89.17 ms"), HasSubstr("30,760 MiB")));
  EXPECT_THAT(table, HasSubstr("2 min 29.8 s, step 1,680"));
  EXPECT_THAT(table, AllOf(Not(HasSubstr("group")), Not(HasSubstr("tokens/s"))));
  run.validations.back().tokens = 1680.0 * 393216;
  EXPECT_THAT(RunsTable({run}, 3.28), HasSubstr("<td>4,409,899</td>"));
  run.planned_steps = 2000;
  table = RunsTable({run}, 3.2);
  EXPECT_THAT(table,
              AllOf(HasSubstr("1,680 <span class=\"cut\">of 2,000</span>"),
                    HasSubstr("3.2792 <span class=\"cut\">at 1,680"), HasSubstr("not reached")));
}

TEST(DurationText, Units) {
  EXPECT_EQ(DurationText(1.2345), "1.234 s");
  EXPECT_EQ(DurationText(59.9999), "60.000 s");
  EXPECT_EQ(DurationText(139.804), "2 min 19.8 s");
  EXPECT_EQ(DurationText(3 * 3600 + 125), "3 h 02 min 05 s");
}

}  // namespace
}  // namespace tools
