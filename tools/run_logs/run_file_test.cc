#include "tools/run_logs/run_file.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/run_log.h"

namespace tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TrainingRun Good(const absl::StatusOr<std::vector<TrainingRun>>& runs) {
  EXPECT_TRUE(runs.ok()) << runs.status();
  if (!runs.ok()) return TrainingRun();
  EXPECT_EQ(runs->size(), 1);
  EXPECT_EQ(runs->front().trial, 0);
  return runs->front();
}

// In the form of the PyTorch original's: the program, a rule, the environment, a rule, the run.
std::string OriginalsLog() {
  const std::string rule(100, '=');
  return absl::StrCat(
      "import torch\n        print0(f\"step:{step}/{steps} val_loss:{val_loss:.4f} "
      "train_time:{ms:.0f}ms\")\n",
      rule, "\nRunning Python 3.10.12\n", rule,
      "\nstep:0/3 val_loss:10.8258 train_time:0ms step_avg:0.03ms\n"
      "step:1/3 train_time:155ms step_avg:154.61ms\nstep:2/3 train_time:182ms step_avg:90.77ms\n"
      "step:3/3 train_time:240ms step_avg:79.84ms\n"
      "step:3/3 val_loss:3.2792 train_time:250ms step_avg:83.33ms\n"
      "peak memory allocated: 30760 MiB reserved: 45914 MiB\n");
}

TEST(ParsePrintedLog, TheOriginals) {
  const TrainingRun run = Good(ParsePrintedLog("a.txt", OriginalsLog()));
  EXPECT_EQ(run.steps.size(), 3);
  EXPECT_EQ(run.steps[1].train_ms, 182);
  EXPECT_EQ(run.validations.size(), 2);
  EXPECT_EQ(run.validations[1].loss, 3.2792);
  EXPECT_EQ(run.planned_steps, 3);
  EXPECT_EQ(run.peak_mib, 30760);
  EXPECT_EQ(run.batch_tokens, std::nullopt);
  EXPECT_THAT(run.notes, IsEmpty());
}

// Of a log that ends anywhere the whole lines count, and a note tells of the rest.
TEST(ParsePrintedLog, CutAnywhere) {
  const std::string log = OriginalsLog();
  const size_t first = log.find("step:0/3");
  for (size_t size = first; size < log.size(); ++size) {
    const std::string cut = log.substr(0, size);
    const absl::StatusOr<std::vector<TrainingRun>> run = ParsePrintedLog("a.txt", cut);
    const size_t times = [&] {
      size_t n = 0;
      for (size_t at = first; (at = cut.find("ms step_avg", at)) != std::string::npos; ++at) ++n;
      return n;
    }();
    if (!run.ok()) {
      EXPECT_LE(times, 0) << cut.substr(first);
      continue;
    }
    EXPECT_GE(run->front().steps.size() + run->front().validations.size(), times)
        << cut.substr(first);
  }
  const TrainingRun run = Good(ParsePrintedLog("a.txt", log.substr(0, log.find("240ms"))));
  EXPECT_EQ(run.last_step(), 2);
  EXPECT_THAT(run.notes, ElementsAre("line 9, the last, is cut off and was left out"));
}

TEST(ParsePrintedLog, BrokenLinesInTheMiddle) {
  const TrainingRun run = Good(ParsePrintedLog(
      "a.txt",
      "step:1/4 train_time:1ms\nstep:2/4 train_ti\nstep:2/4 x\nstep:3/4 train_time:3ms\n"));
  EXPECT_EQ(run.steps.size(), 2);
  ASSERT_EQ(run.notes.size(), 2);
  EXPECT_THAT(run.notes[0], HasSubstr("line 2 was left out: \"step:2/4 train_ti\""));
  EXPECT_EQ(run.notes[1], "1 more broken lines were left out");
}

TEST(ParsePrintedLog, NotFinite) {
  const TrainingRun run =
      Good(ParsePrintedLog("a.txt",
                           "step:0/2 val_loss:nan train_time:0ms\n"
                           "step:1/2 train_loss:inf train_time:5ms step_avg:nanms\n"));
  EXPECT_TRUE(std::isnan(run.validations[0].loss));
  EXPECT_TRUE(std::isnan(*run.steps[0].loss));
}

TEST(ParsePrintedLog, TwoRuns) {
  const auto runs = ParsePrintedLog("a.txt", OriginalsLog() + OriginalsLog());
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2);
  EXPECT_EQ((*runs)[0].validations.back().line, 10);
  EXPECT_EQ((*runs)[1].validations.front().line, 17);
  EXPECT_EQ(RunText((*runs)[1]), "a.txt#2");
  // After the end, but not from the beginning.
  const absl::Status status =
      ParsePrintedLog("a.txt", OriginalsLog() + "step:2/3 train_time:5ms\n").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a.txt:12: a second run, after the one that ends in line 10"));
}

// In the form of the original's track 3: seconds, several trials in one file.
TEST(ParsePrintedLog, K2_19_TrialsOfOneFileAreRuns) {
  const std::string rule(100, '=');
  std::string log = absl::StrCat("import torch\nnum_trials = 3\n", rule, "\n");
  for (int trial = 1; trial <= 3; ++trial) {
    absl::StrAppend(&log, "trial:", trial, "/3 seed:", trial,
                    "\nstep:0/1000 val_loss:10.77650 train_time:0.000s step_avg:nanms\n"
                    "step:125/1000 val_loss:4.8",
                    trial,
                    "555 train_time:99.402s step_avg:795.22ms\n"
                    "step:1000/1000 val_loss:3.27",
                    trial, "41 train_time:2492.778s step_avg:778.00ms\n");
  }
  const auto runs = ParsePrintedLog("trials.txt", log);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 3);
  for (int trial = 1; trial <= 3; ++trial) {
    const TrainingRun& run = (*runs)[trial - 1];
    EXPECT_EQ(run.trial, trial);
    EXPECT_EQ(run.planned_steps, 1000);
    EXPECT_EQ(run.validations.size(), 3);
    EXPECT_NEAR(run.final_validation()->loss, 3.27041 + 0.001 * trial, 1e-9);
    EXPECT_DOUBLE_EQ(*run.final_validation()->train_ms, 2492778);
    EXPECT_THAT(run.notes, IsEmpty());
  }
}

// What the trainer itself writes.
TEST(ParseOwn, LogAndMetrics) {
  const std::string folder = testing::TempDir();
  const std::string printed = absl::StrCat(folder, "/own.log");
  const std::string metrics = absl::StrCat(folder, "/own.jsonl");
  std::FILE* out = std::fopen(printed.c_str(), "w");
  ASSERT_NE(out, nullptr);
  absl::StatusOr<std::unique_ptr<RunLog>> log = RunLog::Create(metrics, false, 2, out);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Text("2 steps of 4096 tokens in 8 slots, 1 ranks on CPU, seed 0");
  (*log)->Validation(0, 10.5, 0);
  StepRecord record;
  record.step = 1;
  record.loss = 8.25;
  record.lr = 0.5;
  record.momentum = 0.9;
  record.tokens = 4096;
  record.step_ms = 100;
  record.tokens_per_s = 40960;
  record.window_tokens = 384;
  (*log)->Step(record, 100);
  record.step = 2;
  record.loss = std::nan("");
  (*log)->Step(record, 200);
  (*log)->Validation(2, std::nan(""), 200);
  ASSERT_TRUE((*log)->Close().ok());
  std::fclose(out);

  const TrainingRun a = Good(ParsePrintedLog(printed, Contents(printed)));
  EXPECT_EQ(a.batch_tokens, 4096);
  EXPECT_EQ(a.steps.size(), 2);
  EXPECT_TRUE(std::isnan(a.validations[1].loss));

  const TrainingRun b = Good(ParseMetrics(metrics, Contents(metrics)));
  ASSERT_EQ(b.steps.size(), 2);
  EXPECT_EQ(b.steps[0].loss, 8.25);
  EXPECT_EQ(b.steps[0].lr, 0.5);
  EXPECT_EQ(b.steps[0].momentum, 0.9);
  EXPECT_EQ(b.steps[0].window_tokens, 384);
  EXPECT_EQ(b.steps[0].tokens, 4096);
  EXPECT_EQ(b.steps[0].step_ms, 100);
  EXPECT_TRUE(std::isnan(*b.steps[1].loss));
  EXPECT_EQ(b.validations[1].train_ms, 200);
  EXPECT_TRUE(std::isnan(b.validations[1].loss));
  EXPECT_EQ(b.planned_steps, std::nullopt);
}

TEST(ParseMetrics, CutAndBrokenRows) {
  const std::string row = "{\"step\":1,\"loss\":4}\n";
  const TrainingRun cut = Good(ParseMetrics("m.jsonl", absl::StrCat(row, "{\"step\":2,\"lo")));
  EXPECT_EQ(cut.steps.size(), 1);
  EXPECT_THAT(cut.notes, ElementsAre("line 2, the last, is cut off and was left out"));
  for (const char* broken : {"{\"step\":2}", "{\"step\":2.5,\"loss\":1}", "{\"loss\":1}", "[1]",
                             "{\"step\":0,\"loss\":1}", "{\"step\":2,\"loss\":\"low\"}",
                             "{\"step\":-2,\"val_loss\":1}", "\xff"}) {
    const TrainingRun run = Good(
        ParseMetrics("m.jsonl", absl::StrCat(row, broken, "\n", "{\"step\":3,\"val_loss\":3}\n")));
    EXPECT_EQ(run.steps.size() + run.validations.size(), 2) << broken;
    ASSERT_EQ(run.notes.size(), 1) << broken;
    EXPECT_THAT(run.notes[0], HasSubstr("line 2 was left out")) << broken;
  }
  EXPECT_EQ(ParseMetrics("m.jsonl", "{\"step\":1}\n").status().code(), absl::StatusCode::kDataLoss);
}

TEST(KindOf, AllKinds) {
  EXPECT_EQ(*KindOf("a", OriginalsLog()), FileKind::kPrintedLog);
  EXPECT_EQ(*KindOf("a", "step:0/3 val_lo"), FileKind::kPrintedLog);
  EXPECT_EQ(*KindOf("a", "\n{\"step\":1,\"loss\":4}\n"), FileKind::kMetrics);
  EXPECT_EQ(*KindOf("a", "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["), FileKind::kTrace);
  for (const char* text : {"", " \n", "import torch\n", "{\"a\":1}", "[]"}) {
    const absl::Status status = KindOf("some/file", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("some/file: ")) << text;
  }
}

}  // namespace
}  // namespace tools
