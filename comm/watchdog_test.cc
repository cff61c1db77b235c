#include "comm/watchdog.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

TEST(Watchdog, DoesNothingWhileAllIsWell) {
  std::atomic<int> ends{0};
  {
    Watchdog watchdog(absl::Milliseconds(1), [&](const std::string&) { ++ends; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(ends, 0);
}

TEST(Watchdog, DoesNothingWhenTheRanksComeBack) {
  std::atomic<int> ends{0};
  {
    Watchdog watchdog(absl::Seconds(60), [&](const std::string&) { ++ends; });
    watchdog.Failed(absl::UnavailableError("rank 3 is gone"));
  }
  EXPECT_EQ(ends, 0);
}

TEST(Watchdog, EndsWithTheLatestStatusWhenTheyDoNot) {
  std::atomic<bool> ended{false};
  std::string message;
  Watchdog watchdog(absl::Milliseconds(50), [&](const std::string& text) {
    message = text;
    ended = true;
  });
  const auto start = std::chrono::steady_clock::now();
  watchdog.Failed(absl::UnavailableError("rank 3 is gone"));
  watchdog.Failed(absl::UnavailableError("rank 3 is gone\n  with a report"));
  while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::StartsWith(message, "rank 3 is gone\n  with a report\n")) << message;
  EXPECT_TRUE(absl::StrContains(message, "did not come back within 50ms")) << message;
}

TEST(WatchdogDeathTest, EndsTheProcessWithCodeTwo) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Watchdog watchdog(absl::Milliseconds(10));
        watchdog.Failed(absl::UnavailableError("rank 3 is gone"));
        while (true) std::this_thread::sleep_for(std::chrono::seconds(1));  // stuck
      },
      testing::ExitedWithCode(2), "watchdog_test: rank 3 is gone");
}

}  // namespace
}  // namespace comm
