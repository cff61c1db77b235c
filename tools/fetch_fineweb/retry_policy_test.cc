#include "tools/fetch_fineweb/retry_policy.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

constexpr absl::Duration kNone = absl::ZeroDuration();
const absl::Status kCut = absl::UnavailableError("cut");

RetryPolicy ThreeRetries() {
  return {.retries = 3,
          .first_delay = absl::Seconds(2),
          .max_delay = absl::Seconds(5),
          .max_retry_after = absl::Seconds(100)};
}

TEST(Backoff, DoublesToItsMaximumAndSpreads) {
  const RetryPolicy policy = ThreeRetries();
  EXPECT_EQ(Backoff(policy, 0, 0), absl::Seconds(1));
  EXPECT_EQ(Backoff(policy, 0, 0.5), absl::Seconds(1.5));
  EXPECT_EQ(Backoff(policy, 1, 0.5), absl::Seconds(3));
  EXPECT_EQ(Backoff(policy, 2, 0.5), absl::Seconds(3.75));  // 8 s are cut to 5
  EXPECT_EQ(Backoff(policy, 1'000'000, 0), absl::Seconds(2.5));
}

TEST(RetryCounter, GivesUpAfterItsRetries) {
  RetryCounter counter(ThreeRetries());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(counter.NextDelay(kCut, 0, kNone, 0).ok()) << i;
  const absl::StatusOr<absl::Duration> last = counter.NextDelay(kCut, 0, kNone, 0);
  EXPECT_EQ(last.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(last.status().message()).find("cut; given up after 4 tries"),
            std::string::npos)
      << last.status();
}

TEST(RetryCounter, CountsAnewAfterProgress) {
  RetryCounter counter(ThreeRetries());
  for (int i = 1; i <= 100; ++i) {
    const absl::StatusOr<absl::Duration> delay =
        counter.NextDelay(kCut, i * kProgressBytes, kNone, 0);
    ASSERT_TRUE(delay.ok()) << i;
    EXPECT_EQ(*delay, absl::Seconds(1)) << i;
  }
}

TEST(RetryCounter, LittleIsNoProgressNorIsTheSameAgain) {
  RetryCounter little(ThreeRetries());
  RetryCounter same(ThreeRetries());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(little.NextDelay(kCut, i, kNone, 0).ok());
  EXPECT_FALSE(little.NextDelay(kCut, 3, kNone, 0).ok());
  // A server that cannot resume and is always cut at the same place.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same.NextDelay(kCut, 2 * kProgressBytes, kNone, 0).ok());
  EXPECT_FALSE(same.NextDelay(kCut, 2 * kProgressBytes, kNone, 0).ok());
}

TEST(RetryCounter, WaitsAsLongAsTheServerAsksWithinABound) {
  RetryCounter counter(ThreeRetries());
  EXPECT_EQ(*counter.NextDelay(kCut, 0, absl::Seconds(100), 0), absl::Seconds(100));
  EXPECT_EQ(*counter.NextDelay(kCut, 0, absl::Milliseconds(1), 0), absl::Seconds(2));
  const absl::StatusOr<absl::Duration> refused = counter.NextDelay(kCut, 0, absl::Seconds(101), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("wait for 1m41s, more than the 1m40s"),
            std::string::npos)
      << refused.status();
}

TEST(RetryCounter, OtherFailuresAreFinal) {
  RetryCounter counter(ThreeRetries());
  for (const absl::Status& failure :
       {absl::NotFoundError("404"), absl::PermissionDeniedError("401"),
        absl::ResourceExhaustedError("full"), absl::CancelledError("stopped")}) {
    EXPECT_EQ(counter.NextDelay(failure, 0, kNone, 0).status(), failure);
  }
}

TEST(IsTransientHttpStatus, OnlyWhatMayChange) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504}) {
    EXPECT_TRUE(IsTransientHttpStatus(status)) << status;
  }
  for (const int status : {200, 206, 302, 400, 401, 403, 404, 410, 416, 501, 505}) {
    EXPECT_FALSE(IsTransientHttpStatus(status)) << status;
  }
}

}  // namespace
}  // namespace tools
