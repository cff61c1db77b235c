#include "sched/run_length.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {

absl::Status Validate(const RunLength& run) {
  if (run.scheduled_steps < 0 || run.extension_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat("run length: ", run.scheduled_steps,
                                                   " scheduled and ", run.extension_steps,
                                                   " extension steps; neither may be negative"));
  }
  return absl::OkStatus();
}

RunLength Rescaled(const RunLength& run, int64_t total_steps) {
  const int64_t extension = ScaledSteps(run.extension_steps, run.total(), total_steps);
  return {.scheduled_steps = total_steps - extension, .extension_steps = extension};
}

int64_t ScaledSteps(int64_t steps, int64_t old_total, int64_t new_total) {
  CHECK_GE(steps, 0);
  CHECK_GT(old_total, 0);
  CHECK_GE(new_total, 0);
  // The product of two step counts can pass 2^63; long double holds each factor exactly.
  return std::llround(static_cast<long double>(steps) * new_total / old_total);
}

}  // namespace sched
