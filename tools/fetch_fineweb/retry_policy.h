// Whether to try again, and after how long. Pure: chance is an argument, and nothing waits here.
#ifndef TOOLS_FETCH_FINEWEB_RETRY_POLICY_H_
#define TOOLS_FETCH_FINEWEB_RETRY_POLICY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tools {

struct RetryPolicy {
  // In a row without progress: a file that keeps coming may be cut any number of times.
  int retries = 5;
  absl::Duration first_delay = absl::Seconds(1);      // doubles with each failure in a row
  absl::Duration max_delay = absl::Seconds(60);       // where the doubling ends
  absl::Duration max_retry_after = absl::Minutes(5);  // the longest that a server may ask for
};

// What this many bytes more of a file than ever before count as progress. Less does not, so that a
// server which ends each connection after a few bytes is given up.
inline constexpr int64_t kProgressBytes = 1 << 20;

// The answers that another try may change: 408, 425, 429, 500, 502, 503, 504.
bool IsTransientHttpStatus(int64_t http_status);

// The wait after failure number `failure` in a row (from 0): first_delay * 2^failure, at most
// max_delay, times a factor between 1/2 and 1, so that parallel tries spread. `chance` is in
// [0, 1).
absl::Duration Backoff(const RetryPolicy& policy, int failure, double chance);

// Counts the failures of one file.
class RetryCounter {
 public:
  explicit RetryCounter(const RetryPolicy& policy) : policy_(policy) {}

  // After a try that ended with `failure`, when the file had reached `bytes`: the wait before the
  // next try, which is the server's `retry_after` where that is longer than the backoff. Or
  // `failure` itself, with how often it was tried, if there is to be no other try: it is not
  // Unavailable, the retries are used up, or the server asks for more than max_retry_after.
  absl::StatusOr<absl::Duration> NextDelay(const absl::Status& failure, int64_t bytes,
                                           absl::Duration retry_after, double chance);

 private:
  const RetryPolicy policy_;
  int failures_ = 0;  // in a row without progress
  int64_t best_ = 0;  // the most bytes that counted as progress
};

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_RETRY_POLICY_H_
