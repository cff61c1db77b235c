#include "tools/verify_record/run_result.h"

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/run_log.h"

namespace tools {
namespace {

using testing::HasSubstr;

constexpr char kFinal[] = "step:2285/2285 val_loss:3.2780 train_time:139804ms step_avg:61.18ms\n";

std::string Refusal(absl::string_view text) {
  return std::string(ParseRunLog("run.txt", text).status().message());
}

// The original's logs: the program, a rule, the environment, a rule, the run, peak memory.
TEST(ParseRunLog, TheOriginalsLog) {
  const std::string rule(100, '=');
  const std::string log = absl::StrCat(
      "import torch\n"
      "        print0(f\"step:{step}/{train_steps} val_loss:{val_loss:.4f} "
      "train_time:{training_time_ms:.0f}ms step_avg:{step_avg:.2f}ms\", console=True)\n",
      rule, "\nRunning Python 3.10.12\n", rule,
      "\nstep:0/2285 val_loss:10.8258 train_time:0ms step_avg:0.03ms\n"
      "step:1/2285 train_time:155ms step_avg:155.09ms\n"
      "step:2250/2285 val_loss:3.2838 train_time:137640ms step_avg:61.17ms\n"
      "step:2285/2285 train_time:139803ms step_avg:61.18ms\n",
      kFinal, "peak memory allocated: 29250 MiB reserved: 50528 MiB\n");
  const absl::StatusOr<RunResult> result = ParseRunLog("run.txt", log);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 2285);
  EXPECT_EQ(result->val_loss, 3.2780);
  EXPECT_EQ(result->train_ms, 139804);
}

// Six decimals, as on track 2; carriage returns; nothing after the last line.
TEST(ParseRunLog, OtherForms) {
  const absl::StatusOr<RunResult> result =
      ParseRunLog("run.txt",
                  "step:0/6450 val_loss:10.825840 train_time:0ms step_avg:nanms\r\n"
                  "step:6450/6450 val_loss:2.919352 train_time:1515353ms step_avg:234.94ms\r");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->val_loss, 2.919352);
}

TEST(ReadRunLog, OwnLogAndMetrics) {
  const std::string folder = testing::TempDir();
  const std::string printed = absl::StrCat(folder, "/own.txt");
  const std::string metrics = absl::StrCat(folder, "/own.jsonl");
  std::FILE* out = std::fopen(printed.c_str(), "w");
  ASSERT_NE(out, nullptr);
  absl::StatusOr<std::unique_ptr<RunLog>> log = RunLog::Create(metrics, false, 2, out);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Text("track1: muon_custom_sizing");
  (*log)->Validation(0, 10.8258, 0);
  (*log)->Step({.step = 1, .loss = 10.8}, 61);
  (*log)->Step({.step = 2, .loss = 10.7}, 122);
  (*log)->Validation(2, 3.27804321, 122.4);
  ASSERT_TRUE((*log)->Close().ok());
  std::fclose(out);

  const absl::StatusOr<RunResult> from_printed = ReadRunLog(printed);
  ASSERT_TRUE(from_printed.ok()) << from_printed.status();
  EXPECT_EQ(from_printed->steps, 2);
  EXPECT_EQ(from_printed->val_loss, 3.2780);
  EXPECT_EQ(from_printed->train_ms, 122);
  const absl::StatusOr<RunResult> from_metrics = ReadRunLog(metrics);
  ASSERT_TRUE(from_metrics.ok()) << from_metrics.status();
  EXPECT_EQ(from_metrics->steps, 2);
  EXPECT_EQ(from_metrics->val_loss, 3.27804321);
  EXPECT_EQ(from_metrics->train_ms, 122.4);
}

TEST(ParseRunLog, AResumedFinishedRunSaysItsResultTwice) {
  EXPECT_TRUE(ParseRunLog("run.txt", absl::StrCat(kFinal, kFinal)).ok());
}

TEST(ParseRunLog, RefusesTwoRunsInOneLog) {
  EXPECT_EQ(Refusal(absl::StrCat(kFinal, "step:9/9 val_loss:3.1 train_time:9ms step_avg:1ms")),
            "run.txt:2: a second finished run, after the one that ends in line 1; give each run "
            "a file of its own");
}

TEST(ParseRunLog, RefusesUnfinishedRuns) {
  EXPECT_EQ(Refusal("step:250/2285 val_loss:4.09 train_time:15172ms step_avg:60ms\n"
                    "step:251/2285 train_time:15233ms step_avg:60ms\n"),
            "run.txt:1: the last validation is at step 250 of 2285; only finished runs count");
  EXPECT_THAT(Refusal("{\"step\":0,\"val_loss\":10.8,\"train_ms\":0}\n{\"step\":1,\"loss\":10}\n"),
              HasSubstr("run.txt:2: the last row is a training step"));
  EXPECT_THAT(Refusal("{\"step\":0,\"val_loss\":10.8,\"train_ms\":0}\n{\"step\":1,\"lo"),
              HasSubstr("run.txt:2: the last row is cut off"));
}

TEST(ParseRunLog, RefusesOtherFiles) {
  EXPECT_THAT(Refusal(""), HasSubstr("run.txt: no line step:N/M val_loss:X"));
  EXPECT_THAT(Refusal("step:1/2 train_time:155ms step_avg:155.09ms\n"),
              HasSubstr("no line step:N/M val_loss:X"));
  EXPECT_THAT(Refusal("step:2/2 val_loss:low train_time:5ms\n"),
              HasSubstr("run.txt:1: \"step:2/2 val_loss:low train_time:5ms\" is no validation"));
  EXPECT_THAT(Refusal("step:2/2 val_loss:3.2\n"), HasSubstr("is no validation line"));
  EXPECT_THAT(Refusal("{\"step\":2,\"val_loss\":\"low\",\"train_ms\":5}\n"),
              HasSubstr("a validation row needs step, val_loss and train_ms"));
}

TEST(ParseRunLog, RefusesNumbersThatAreNone) {
  EXPECT_EQ(Refusal("step:2/2 val_loss:nan train_time:5ms step_avg:2ms\n"),
            "run.txt:1: the final val_loss is nan, not a positive number; leave this run out, and "
            "say so");
  EXPECT_THAT(Refusal("step:2/2 val_loss:inf train_time:5ms step_avg:2ms\n"), HasSubstr("is inf"));
  EXPECT_THAT(Refusal("step:0/0 val_loss:10.8 train_time:0ms step_avg:0ms\n"),
              HasSubstr("the train time is 0"));
  EXPECT_THAT(Refusal("{\"step\":2,\"val_loss\":null,\"train_ms\":5}\n"),
              HasSubstr("the final val_loss is nan"));
}

}  // namespace
}  // namespace tools
