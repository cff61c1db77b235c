#include "sched/window.h"

#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"

namespace sched {
namespace {

Windows WindowsA(int64_t step) { return WindowsAt(WindowSchedule(), RunLength(), step); }

Windows Blocks(int short_blocks, int long_blocks) {
  return {.short_tokens = short_blocks * 128,
          .long_tokens = long_blocks * 128,
          .yarn_blocks = long_blocks};
}

TEST(Window, T1_43_WindowChanges) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(WindowChanges(WindowSchedule(), RunLength()), (Steps{547, 1094, 1680}));
  const RunLength longer{.scheduled_steps = 2245, .extension_steps = 40};
  EXPECT_EQ(WindowChanges(WindowSchedule(), longer), (Steps{749, 1498, 2285}));
}

TEST(Window, T1_44_LastValidation) {
  EXPECT_EQ(WindowsA(1680), (Windows{.short_tokens = 768, .long_tokens = 2560, .yarn_blocks = 13}));
}

TEST(Window, TableOfRecordA) {
  for (int64_t step = 0; step < 547; ++step) ASSERT_EQ(WindowsA(step), Blocks(1, 3)) << step;
  for (int64_t step = 547; step < 1094; ++step) ASSERT_EQ(WindowsA(step), Blocks(3, 7)) << step;
  for (int64_t step = 1094; step < 1680; ++step) ASSERT_EQ(WindowsA(step), Blocks(5, 11)) << step;
}

TEST(Window, YarnHistoryFollowsTheChanges) {
  using History = std::vector<int>;
  const WindowSchedule schedule;
  const RunLength run;
  EXPECT_EQ(YarnHistory(schedule, run, 0), (History{3}));
  EXPECT_EQ(YarnHistory(schedule, run, 546), (History{3}));
  EXPECT_EQ(YarnHistory(schedule, run, 547), (History{3, 7}));
  EXPECT_EQ(YarnHistory(schedule, run, 1093), (History{3, 7}));
  EXPECT_EQ(YarnHistory(schedule, run, 1094), (History{3, 7, 11}));
  EXPECT_EQ(YarnHistory(schedule, run, 1679), (History{3, 7, 11}));
  EXPECT_EQ(YarnHistory(schedule, run, 1680), (History{3, 7, 11, 13}));
  EXPECT_EQ(YarnHistory(schedule, run, 9999), (History{3, 7, 11, 13}));
}

// Both functions against the plain way: look at every step.
TEST(Window, ChangesAndHistoryAgreeWithAReplay) {
  const std::vector<std::vector<int>> lists = {{3, 7, 11}, {3}, {3, 3, 7}, {4, 2, 4, 9, 10}};
  for (const std::vector<int>& long_blocks : lists) {
    for (int64_t round = 0; round <= 81; ++round) {
      const int64_t total = round / 2;
      const WindowSchedule schedule{.long_blocks = long_blocks,
                                    .final_in_extension = round % 2 == 1};
      const RunLength run = Rescaled({.scheduled_steps = 4, .extension_steps = 1}, total);
      std::vector<int64_t> changes;
      std::vector<int> history = {long_blocks[0]};
      for (int64_t step = 0; step <= total; ++step) {
        const Windows now = WindowsAt(schedule, run, step);
        if (step > 0 && now != WindowsAt(schedule, run, step - 1)) changes.push_back(step);
        if (now.yarn_blocks != history.back()) history.push_back(now.yarn_blocks);
        ASSERT_EQ(YarnHistory(schedule, run, step), history) << total << " " << step;
      }
      ASSERT_EQ(WindowChanges(schedule, run), changes) << total;
    }
  }
}

TEST(Window, S1_RunsOf0And1And2Steps) {
  const WindowSchedule schedule;
  const Windows last = WindowsA(1680);
  const RunLength none{.scheduled_steps = 0, .extension_steps = 0};
  EXPECT_EQ(WindowsAt(schedule, none, 0), last);
  EXPECT_EQ(YarnHistory(schedule, none, 0), (std::vector<int>{3, 13}));
  const RunLength one{.scheduled_steps = 1, .extension_steps = 0};
  EXPECT_EQ(WindowsAt(schedule, one, 0), Blocks(1, 3));
  EXPECT_EQ(WindowsAt(schedule, one, 1), last);
  const RunLength two{.scheduled_steps = 2, .extension_steps = 0};
  EXPECT_EQ(WindowsAt(schedule, two, 0), Blocks(1, 3));
  EXPECT_EQ(WindowsAt(schedule, two, 1), Blocks(3, 7));  // 3 * (1 / 3) is 1 exactly
  EXPECT_EQ(WindowsAt(schedule, two, 2), last);
}

TEST(Window, S3_PastTheEndStaysFinal) {
  for (const int64_t step : {int64_t{1681}, int64_t{100000}, int64_t{1} << 62}) {
    EXPECT_EQ(WindowsA(step), WindowsA(1680)) << step;
  }
}

TEST(Window, CountsTokensInItsOwnBlocks) {
  const WindowSchedule schedule{.block_tokens = 16};
  EXPECT_EQ(WindowsAt(schedule, RunLength(), 600),
            (Windows{.short_tokens = 48, .long_tokens = 112, .yarn_blocks = 7}));
}

TEST(Window, RefusesWindowsWithoutAShortHalf) {
  const absl::Status status = Validate(WindowSchedule{.long_blocks = {3, 1}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "window schedule: long_blocks has a window of 1 blocks; the short window is half of "
            "it, so the least is 2");
  EXPECT_FALSE(Validate(WindowSchedule{.long_blocks = {}}).ok());
  EXPECT_FALSE(Validate(WindowSchedule{.long_blocks = std::vector<int>(10000, 3)}).ok());
  EXPECT_FALSE(Validate(WindowSchedule{.block_tokens = 0}).ok());
  EXPECT_FALSE(Validate(WindowSchedule{.final_yarn_blocks = 0}).ok());
  EXPECT_FALSE(Validate(WindowSchedule{.final_long_blocks = -20}).ok());
  EXPECT_TRUE(Validate(WindowSchedule()).ok());
}

}  // namespace
}  // namespace sched
