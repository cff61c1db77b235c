#include "sched/window.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/toy.h"

namespace sched {
namespace {

Windows ToyWindowsAt(int64_t step) { return WindowsAt(ToyWindow(), ToyRun(), step); }

Windows Blocks(int short_blocks, int long_blocks) {
  return {.short_tokens = short_blocks * 128,
          .long_tokens = long_blocks * 128,
          .yarn_blocks = long_blocks};
}

TEST(Window, YarnHistoryFollowsTheChanges) {
  using History = std::vector<int>;
  const WindowSchedule schedule = ToyWindow();
  const RunLength run = ToyRun();
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
      WindowSchedule schedule = ToyWindow();
      schedule.long_blocks = long_blocks;
      schedule.final_in_extension = round % 2 == 1;
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
  const WindowSchedule schedule = ToyWindow();
  const Windows last = ToyWindowsAt(1680);
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
    EXPECT_EQ(ToyWindowsAt(step), ToyWindowsAt(1680)) << step;
  }
}

TEST(Window, CountsTokensInItsOwnBlocks) {
  WindowSchedule schedule = ToyWindow();
  schedule.block_tokens = 16;
  EXPECT_EQ(WindowsAt(schedule, ToyRun(), 600),
            (Windows{.short_tokens = 48, .long_tokens = 112, .yarn_blocks = 7}));
}

TEST(Window, RefusesWindowsWithoutAShortHalf) {
  const absl::Status status = Validate(With(ToyWindow(), [](WindowSchedule& w) {
    w.long_blocks = {3, 1};
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "window schedule: long_blocks has a window of 1 blocks; the short window is half of "
            "it, so the least is 2");
  EXPECT_FALSE(Validate(With(ToyWindow(), [](WindowSchedule& w) { w.long_blocks = {}; })).ok());
  EXPECT_FALSE(Validate(With(ToyWindow(), [](WindowSchedule& w) {
                 w.long_blocks = std::vector<int>(10000, 3);
               })).ok());
  EXPECT_FALSE(Validate(With(ToyWindow(), [](WindowSchedule& w) { w.block_tokens = 0; })).ok());
  EXPECT_FALSE(
      Validate(With(ToyWindow(), [](WindowSchedule& w) { w.final_yarn_blocks = 0; })).ok());
  EXPECT_FALSE(
      Validate(With(ToyWindow(), [](WindowSchedule& w) { w.final_long_blocks = -20; })).ok());
  EXPECT_TRUE(Validate(ToyWindow()).ok());
}

// Against the definition, also where the quotient by the block is rounded.
TEST(Window, GrowsInAnyBlock) {
  for (const int64_t block : {1, 7, 48, 49, 100, 128}) {
    for (const int64_t steps : {1, 3, 10, 245, 1000}) {
      const WindowSchedule schedule{.block_tokens = block, .grow_to_tokens = 1000};
      const RunLength run{.scheduled_steps = steps, .extension_steps = 2};
      for (int64_t step = 0; step <= steps + 3; ++step) {
        const double least = 1000.0 * (std::min(step, steps) / static_cast<double>(steps));
        int64_t window = block;
        while (static_cast<double>(window) < least) window += block;
        ASSERT_EQ(WindowsAt(schedule, run, step).long_tokens, window) << block << " " << step;
        ASSERT_EQ(WindowsAt(schedule, run, step).short_tokens, window / block / 2 * block);
      }
    }
  }
}

TEST(Window, RefusesGrowingWindows) {
  const auto refused = [](const WindowSchedule& schedule, const char* part) {
    const absl::Status status = Validate(schedule);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  };
  refused({.block_tokens = 128, .grow_to_tokens = -1}, "grow_to_tokens is -1");
  refused({.block_tokens = 128, .grow_to_tokens = int64_t{1} << 31},
          "grow_to_tokens is 2147483648");
  refused({.block_tokens = 0, .grow_to_tokens = 1728}, "block_tokens is 0");
  refused({.block_tokens = 128, .final_in_extension = true, .grow_to_tokens = 1728},
          "final_in_extension");
  EXPECT_TRUE(Validate(WindowSchedule{.block_tokens = 128, .grow_to_tokens = 1}).ok());
}

}  // namespace
}  // namespace sched
