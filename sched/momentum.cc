#include "sched/momentum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

bool IsMomentum(double value) { return value >= 0 && value < 1; }  // false for NaN

}  // namespace

absl::Status Validate(const MomentumSchedule& schedule) {
  if (!IsMomentum(schedule.start) || !IsMomentum(schedule.end)) {
    return absl::InvalidArgumentError(absl::StrCat("momentum schedule: from ", schedule.start,
                                                   " to ", schedule.end,
                                                   "; both must lie in [0, 1)"));
  }
  if (schedule.warmup_steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat("momentum schedule: warmup_steps is ",
                                                   schedule.warmup_steps, "; the least is 1"));
  }
  return absl::OkStatus();
}

double MomentumAt(const MomentumSchedule& schedule, int64_t step) {
  CHECK_GE(step, 0);
  CHECK_GE(schedule.warmup_steps, 1);
  const double t =
      std::min(static_cast<double>(step) / static_cast<double>(schedule.warmup_steps), 1.0);
  return (1 - t) * schedule.start + t * schedule.end;
}

}  // namespace sched
