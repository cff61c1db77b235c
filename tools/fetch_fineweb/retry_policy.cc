#include "tools/fetch_fineweb/retry_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace tools {

bool IsTransientHttpStatus(int64_t http_status) {
  switch (http_status) {
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return true;
    default:
      return false;
  }
}

absl::Duration Backoff(const RetryPolicy& policy, int failure, double chance) {
  CHECK(failure >= 0 && chance >= 0 && chance < 1) << failure << ", " << chance;
  absl::Duration delay = policy.first_delay;
  for (int i = 0; i < failure && delay < policy.max_delay; ++i) delay *= 2;
  return std::min(delay, policy.max_delay) * (0.5 + 0.5 * chance);
}

absl::StatusOr<absl::Duration> RetryCounter::NextDelay(const absl::Status& failure, int64_t bytes,
                                                       absl::Duration retry_after, double chance) {
  CHECK(!failure.ok());
  if (failure.code() != absl::StatusCode::kUnavailable) return failure;
  if (bytes >= best_ + kProgressBytes) {
    best_ = bytes;
    failures_ = 0;
  }
  if (retry_after > policy_.max_retry_after) {
    return absl::UnavailableError(absl::StrCat(
        failure.message(), "; the server asks to wait for ", absl::FormatDuration(retry_after),
        ", more than the ", absl::FormatDuration(policy_.max_retry_after),
        " that are waited for: run the same command again later"));
  }
  if (failures_ >= policy_.retries) {
    return absl::UnavailableError(
        absl::StrCat(failure.message(), "; given up after ", failures_ + 1,
                     " tries without progress: the same command goes on from here, and --retries "
                     "sets how often it tries"));
  }
  return std::max(Backoff(policy_, failures_++, chance), retry_after);
}

}  // namespace tools
