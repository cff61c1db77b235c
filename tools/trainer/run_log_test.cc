#include "tools/trainer/run_log.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tools/checkpoint/files.h"
#include "tools/trainer/progress_bar.h"

namespace tools {
namespace {

std::string ReadBack(std::FILE* file) {
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(RunLog, LinesAreTheReferences) {
  std::FILE* out = std::tmpfile();
  auto log = RunLog::Create("", false, 1765, out);
  ASSERT_TRUE(log.ok());
  (*log)->Validation(250, 4.12341, 14532.4);
  (*log)->Step({.step = 251, .loss = 4.1}, 14590.0);
  (*log)->Validation(0, 10.825840, 0.0);
  EXPECT_EQ(ReadBack(out),
            "step:250/1765 val_loss:4.1234 train_time:14532ms step_avg:58.13ms\n"
            "step:251/1765 train_time:14590ms step_avg:58.13ms\n"
            "step:0/1765 val_loss:10.8258 train_time:0ms step_avg:0.00ms\n");
  std::fclose(out);
}

TEST(RunLog, MetricsAreOneObjectALine) {
  const std::string path = testing::TempDir() + "/metrics.jsonl";
  std::FILE* out = std::tmpfile();
  {
    auto log = RunLog::Create(path, false, 2, out);
    ASSERT_TRUE(log.ok());
    StepRecord record;
    record.step = 1;
    record.loss = 10.8258405;
    record.lr = 0.5;
    record.tokens = 4096;
    record.step_ms = 12.5;
    (*log)->Step(record, 12.5);
    record.loss = NAN;
    (*log)->Step(record, 12.5);
    (*log)->Validation(2, 3.25, 25);
    EXPECT_TRUE((*log)->Close().ok());
  }
  {  // a resumed run appends
    auto log = RunLog::Create(path, true, 2, out);
    ASSERT_TRUE(log.ok());
    (*log)->Validation(3, 3, 1);
  }
  std::fclose(out);
  EXPECT_EQ(*ReadFile(path),
            "{\"step\":1,\"loss\":10.8258405,\"lr\":0.5,\"momentum\":0,\"window_tokens\":0,"
            "\"tokens\":4096,\"step_ms\":12.5,\"tokens_per_s\":0}\n"
            "{\"step\":1,\"loss\":null,\"lr\":0.5,\"momentum\":0,\"window_tokens\":0,"
            "\"tokens\":4096,\"step_ms\":12.5,\"tokens_per_s\":0}\n"
            "{\"step\":2,\"val_loss\":3.25,\"train_ms\":25}\n"
            "{\"step\":3,\"val_loss\":3,\"train_ms\":1}\n");
}

TEST(RunLog, AMetricsFileThatCannotBeWrittenIsBadInput) {
  const auto log = RunLog::Create(testing::TempDir() + "/no/such/folder/m.jsonl", false, 1, stdout);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kInvalidArgument) << log.status();
  EXPECT_NE(log.status().message().find("no/such/folder"), absl::string_view::npos);
}

// The run goes on; its end tells.
TEST(RunLog, X2_AFullDiskIsReportedForBothOutputs) {
  std::FILE* const out = std::fopen("/dev/full", "w");
  ASSERT_NE(out, nullptr);
  auto log = RunLog::Create("/dev/full", false, 2, out);
  ASSERT_TRUE(log.ok()) << log.status();
  testing::internal::CaptureStderr();
  (*log)->Text("head");
  (*log)->Step({.step = 1, .loss = 4.1}, 1.0);
  (*log)->Step({.step = 2, .loss = 4.0}, 2.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: standard output: cannot write: No space left on device; training goes on, "
            "and will end with an error\n"
            "warning: /dev/full: cannot write: No space left on device; training goes on, and will "
            "end with an error\n");
  EXPECT_EQ(
      (*log)->Close(),
      absl::UnavailableError("standard output: was not written in full: No space left on device; "
                             "/dev/full: was not written in full: No space left on device"));
  std::fclose(out);
}

TEST(ProgressBar, Text) {
  EXPECT_EQ(ProgressText(60, 120, 3.2144, 5120.4, 78.2),
            "[===============>              ] 60/120  loss 3.214  5120 tok/s  1:18 left");
  EXPECT_EQ(ProgressText(2, 2, 1, 1, -3),
            "[==============================] 2/2  loss 1.000  1 tok/s  0:00 left");
  EXPECT_EQ(ProgressText(0, 0, 0, 0, 0).substr(0, 12), "[===========");
}

}  // namespace
}  // namespace tools
