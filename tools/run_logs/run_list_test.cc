#include "tools/run_logs/run_list.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Validation(int64_t step, double loss, int64_t ms) {
  return absl::StrCat("step:", step, "/40 val_loss:", loss, " train_time:", ms,
                      "ms step_avg:1.00ms\n");
}

// A run of 40 steps that validates each ten, whose losses end with `end`. `steps`: with the lines
// of training steps, as a log file has them and a console has not.
std::string Log(double end, bool steps = true, int64_t from = 0, int64_t to = 40) {
  std::string text;
  if (from == 0) text = Validation(0, 10.8258, 0);
  if (from > 0) text = Validation(from, 4 - 0.01 * from + end, 100 * from + 7);
  for (int64_t step = from + 1; step <= to; ++step) {
    if (steps) absl::StrAppend(&text, "step:", step, "/40 train_time:", 100 * step, "ms\n");
    if (step % 10 == 0)
      absl::StrAppend(&text, Validation(step, 4 - 0.01 * step + end, 100 * step + 7));
  }
  return text;
}

std::string Metrics(double end, int64_t to = 40) {
  std::string text = "{\"step\":0,\"val_loss\":10.82581,\"train_ms\":0}\n";
  for (int64_t step = 1; step <= to; ++step) {
    absl::StrAppend(&text, "{\"step\":", step, ",\"loss\":4,\"step_ms\":100}\n");
    if (step % 10 != 0) continue;
    absl::StrAppend(&text, "{\"step\":", step, ",\"val_loss\":", 4 - 0.01 * step + end + 0.00002,
                    ",\"train_ms\":", 100 * step + 7.3, "}\n");
  }
  return text;
}

struct Named {
  RunList::Place place;
  std::string text;
};

absl::StatusOr<std::vector<TrainingRun>> Take(const std::vector<Named>& files) {
  RunList list;
  for (const Named& file : files) {
    const FileKind kind = file.text[0] == '{' ? FileKind::kMetrics : FileKind::kPrintedLog;
    EXPECT_TRUE(list.Add(file.place, kind, file.text).ok());
  }
  return list.Take();
}

std::vector<TrainingRun> Runs(const std::vector<Named>& files) {
  const auto runs = Take(files);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *runs : std::vector<TrainingRun>();
}

std::string Refusal(const std::vector<Named>& files) {
  const absl::Status status = Take(files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RunList, K2_21_LogAndMetricsOfOneNameAreOneRun) {
  const auto runs = Runs({{{"a/1.txt"}, Log(0)},
                          {{"a/1.jsonl"}, Metrics(0)},
                          {{"a/2.jsonl"}, Metrics(0.5)},
                          {{"a/2.txt"}, Log(0.5)}});
  ASSERT_EQ(runs.size(), 2);
  EXPECT_THAT(runs[0].paths, ElementsAre("a/1.txt", "a/1.jsonl"));
  EXPECT_THAT(runs[1].paths, ElementsAre("a/2.txt", "a/2.jsonl"));
  EXPECT_EQ(runs[0].planned_steps, 40);
  EXPECT_NEAR(runs[0].final_validation()->loss, 3.60002, 1e-9);
  EXPECT_THAT(runs[0].notes, IsEmpty());
}

TEST(RunList, K2_21_LogAndMetricsOfOtherNamesAreOneRun) {
  const auto runs = Runs({{{"logs/1.txt"}, Log(0)},
                          {{"logs/2.txt"}, Log(0.5)},
                          {{"metrics/b.jsonl"}, Metrics(0.5)},
                          {{"metrics/a.jsonl"}, Metrics(0)}});
  ASSERT_EQ(runs.size(), 2);
  EXPECT_THAT(runs[0].paths, ElementsAre("logs/1.txt", "metrics/a.jsonl"));
  EXPECT_THAT(runs[1].paths, ElementsAre("logs/2.txt", "metrics/b.jsonl"));
  EXPECT_THAT(runs[0].notes, Contains(HasSubstr("logs/1.txt and metrics/a.jsonl have the same")));
}

TEST(RunList, K2_21_AConsolesLogCountsOnce) {
  const auto runs =
      Runs({{{"1.txt"}, Log(0)}, {{"1.stdout"}, Log(0, false)}, {{"2.txt"}, Log(0.5)}});
  ASSERT_EQ(runs.size(), 2);
  EXPECT_THAT(runs[0].paths, ElementsAre("1.txt", "1.stdout"));
  EXPECT_EQ(runs[0].steps.size(), 40);
  EXPECT_THAT(runs[0].notes, Contains(HasSubstr("1.txt and 1.stdout have the same validations")));
  // The other way round, and with the metrics.
  const auto three =
      Runs({{{"1.stdout"}, Log(0, false)}, {{"m.jsonl"}, Metrics(0)}, {{"1.txt"}, Log(0)}});
  ASSERT_EQ(three.size(), 1);
  EXPECT_THAT(three[0].paths, ElementsAre("1.stdout", "1.txt", "m.jsonl"));
  EXPECT_EQ(three[0].steps.size(), 40);
}

TEST(RunList, K2_21_CopiesAreRefusedByName) {
  EXPECT_EQ(Refusal({{{"1.txt"}, Log(0)}, {{"2.txt"}, Log(0.5)}, {{"copy.txt"}, Log(0)}}),
            "1.txt and copy.txt are copies of one run, with the same rows; give one of them");
  EXPECT_THAT(Refusal({{{"1.jsonl"}, Metrics(0)}, {{"2.jsonl"}, Metrics(0)}}),
              HasSubstr("1.jsonl and 2.jsonl are copies"));
  // Another head does not make another run, nor does another group.
  EXPECT_THAT(Refusal({{{"1.txt"}, Log(0)}, {{"2.txt", "", "g"}, "import torch\n" + Log(0)}}),
              HasSubstr("1.txt and 2.txt are copies"));
  EXPECT_THAT(Refusal({{{"1.txt"}, Log(0) + Log(0)}}), HasSubstr("1.txt#1 and 1.txt#2 are copies"));
  EXPECT_THAT(Refusal({{{"1.txt"}, Log(0)}, {{"2.out", "", "g"}, Log(0, false)}}),
              HasSubstr("have different groups, no group and group g"));
}

TEST(RunList, K2_21_AResumedRunsTwoLogsAreOneRun) {
  const std::string first = Log(0, true, 0, 24), second = Log(0, true, 20);
  const auto runs = Runs({{{"1.txt"}, first}, {{"1_resumed.txt"}, second}, {{"2.txt"}, Log(0.5)}});
  ASSERT_EQ(runs.size(), 2);
  EXPECT_THAT(runs[0].paths, ElementsAre("1.txt", "1_resumed.txt"));
  EXPECT_EQ(runs[0].steps.size(), 40);
  EXPECT_EQ(runs[0].validations.size(), 5);
  EXPECT_NE(runs[0].final_validation(), nullptr);
  EXPECT_THAT(runs[0].notes, Contains(HasSubstr("1_resumed.txt goes on from step 20 of 1.txt")));
  // With the metrics, which go on in one file, and in another order.
  EXPECT_EQ(Runs({{{"b.txt"}, second}, {{"m.jsonl"}, Metrics(0)}, {{"a.txt"}, first}}).size(), 1);
  // Another run's log does not reach that step, or has another loss there.
  EXPECT_EQ(Runs({{{"1.txt"}, Log(0, true, 0, 14)}, {{"2.txt"}, second}}).size(), 2);
  EXPECT_EQ(Runs({{{"1.txt"}, Log(0.5, true, 0, 24)}, {{"2.txt"}, second}}).size(), 2);
}

TEST(RunList, K2_21_ALogThatMayGoOnFromTwoIsLeftAlone) {
  std::string second = Log(0, true, 20);
  second.erase(0, second.find('\n') + 1);  // without the checkpoint's validation
  const auto runs = Runs(
      {{{"1.txt"}, Log(0, true, 0, 24)}, {{"2.txt"}, Log(0.5, true, 0, 23)}, {{"3.txt"}, second}});
  ASSERT_EQ(runs.size(), 3);
  EXPECT_THAT(runs[2].notes,
              Contains("begins at step 20, and could go on from any of 1.txt, 2.txt; "
                       "it was left alone"));
}

TEST(RunList, K2_19_TrialsOfOneFileAreRuns) {
  const auto runs =
      Runs({{{"trials.txt"}, Log(0) + Log(0.1) + Log(0.2)}, {{"m.jsonl"}, Metrics(0.1)}});
  ASSERT_EQ(runs.size(), 3);
  EXPECT_EQ(RunText(runs[0]), "trials.txt#1");
  EXPECT_THAT(runs[1].paths, ElementsAre("trials.txt", "m.jsonl"));
}

TEST(RunList, NamesOfTheUser) {
  const auto runs = Runs({{{"a.txt", "x"}, Log(0)}, {{"b.jsonl", "x"}, Metrics(0)}});
  ASSERT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].name, "x");
  EXPECT_THAT(Refusal({{{"a.txt", "x"}, Log(0)}, {{"b.txt", "x"}, Log(0.5)}}),
              HasSubstr("a.txt and b.txt are both called x"));
  EXPECT_THAT(Refusal({{{"a.txt", "x"}, Log(0)}, {{"b.jsonl", "x"}, Metrics(0.5)}}),
              HasSubstr("a.txt and b.jsonl are called the same, but their validation losses"));
}

TEST(RepeatedRun, K2_21_TheSameLossesAreOneSample) {
  // Other times: the same seed again, or a copy that was changed.
  std::string again = Log(0, false);
  for (size_t at = 0; (at = again.find("07ms", at)) != std::string::npos; ++at) again[at] = '5';
  const auto runs = Runs({{{"1.txt"}, Log(0)}, {{"2.txt"}, Log(0.5)}, {{"3.txt"}, again}});
  ASSERT_EQ(runs.size(), 3);
  EXPECT_EQ(RepeatedRun({&runs[0], &runs[1]}), "");
  EXPECT_THAT(RepeatedRun({&runs[0], &runs[1], &runs[2]}),
              HasSubstr("1.txt and 3.txt have the same loss at each of 4 validations"));
}

TEST(FileSet, K2_21_LinksCountOnce) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/links");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string file = folder + "/1.txt", soft = folder + "/soft.txt", hard = folder + "/hard";
  std::ofstream(file) << "text";
  fs::create_symlink("1.txt", soft);
  fs::create_hard_link(file, hard);
  FileSet files;
  std::vector<std::string> notes;
  EXPECT_TRUE(files.Add(file, &notes).value());
  EXPECT_FALSE(files.Add(soft, &notes).value());
  EXPECT_FALSE(files.Add(hard, &notes).value());
  EXPECT_THAT(notes, ElementsAre(soft + " is a link to " + file + ", and counts once",
                                 hard + " is a link to " + file + ", and counts once"));
  EXPECT_THAT(std::string(files.Add(folder + "/./1.txt", &notes).status().message()),
              HasSubstr("given twice"));
}

}  // namespace
}  // namespace tools
