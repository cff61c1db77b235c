#include "tools/run_logs/log_line.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

using testing::HasSubstr;

LogLine Parsed(absl::string_view line) {
  const absl::StatusOr<std::optional<LogLine>> parsed = ParseLogLine(line);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed.ok() && parsed->has_value()) << line;
  return parsed.ok() && parsed->has_value() ? **parsed : LogLine();
}

TEST(ParseLogLine, Validation) {
  const LogLine line = Parsed("step:250/1680 val_loss:4.1234 train_time:14532ms step_avg:58.13ms");
  EXPECT_EQ(line.step, 250);
  EXPECT_EQ(line.total_steps, 1680);
  EXPECT_EQ(line.val_loss, 4.1234);
  EXPECT_EQ(line.train_loss, std::nullopt);
  EXPECT_EQ(line.train_ms, 14532);
}

TEST(ParseLogLine, Training) {
  const LogLine line = Parsed("step:251/1680 train_time:14590ms step_avg:58.13ms\r");
  EXPECT_EQ(line.step, 251);
  EXPECT_EQ(line.val_loss, std::nullopt);
  EXPECT_EQ(line.train_loss, std::nullopt);
  EXPECT_EQ(line.train_ms, 14590);
  EXPECT_EQ(Parsed("step:9/9536 train_loss:7.25 train_time:90ms step_avg:nanms").train_loss, 7.25);
}

// The clock of the original's track 3 counts seconds, and its lines may have more fields.
TEST(ParseLogLine, K2_19_Track3) {
  const LogLine first = Parsed("step:0/1000 val_loss:10.77650 train_time:0.000s step_avg:nanms");
  EXPECT_EQ(first.val_loss, 10.77650);
  EXPECT_EQ(first.train_ms, 0);
  const LogLine last = Parsed("step:1000/1000 val_loss:3.27541 train_time:2492.778s step_avg:9ms");
  EXPECT_DOUBLE_EQ(last.train_ms, 2492778);
  EXPECT_DOUBLE_EQ(Parsed("step:7/9 train_time:669.591s step_avg:204.96ms").train_ms, 669591);
  const LogLine more = Parsed(
      "step:125/2900 val_loss:4.44701 val_avg_loss:4.4 val_ema_loss:4.5 train_time:474.173s "
      "step_avg:3793.38ms ema_beta:0.3");
  EXPECT_EQ(more.val_loss, 4.44701);
  EXPECT_DOUBLE_EQ(more.train_ms, 474173);
  EXPECT_FALSE(ParseLogLine("step:1/2 val_loss:3 and more train_time:1ms").ok());
  EXPECT_FALSE(ParseLogLine("step:1/2 val_loss:3 train_time:1m").ok());
}

TEST(ParseLogLine, NotFinite) {
  EXPECT_TRUE(std::isnan(*Parsed("step:5/9 val_loss:nan train_time:14ms").val_loss));
  EXPECT_TRUE(std::isinf(*Parsed("step:5/9 val_loss:inf train_time:14ms").val_loss));
}

TEST(ParseLogLine, OtherKinds) {
  for (const char* line :
       {"", "import torch", "peak memory allocated: 1 MiB", "step:", "step:3", "steps of 8 tokens",
        " step:2/3 train_time:1ms", "step:{step}/{train_steps} val_loss:{val_loss:.4f}",
        "step:1/2/3 train_time:1ms"}) {
    const absl::StatusOr<std::optional<LogLine>> parsed = ParseLogLine(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_FALSE(parsed->has_value()) << line;
  }
}

TEST(ParseLogLine, CutOrBroken) {
  for (const char* line : {"step:2/3", "step:2/3 ", "step:2/3 train_ti", "step:2/3 train_time:14",
                           "step:2/3 val_loss:", "step:2/3 val_loss:3.2",
                           "step:2/3 val_loss:low train_time:5ms", "step:2/3 loss:1"}) {
    const absl::Status status = ParseLogLine(line).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("needs the form step:N/M")) << line;
  }
}

}  // namespace
}  // namespace tools
