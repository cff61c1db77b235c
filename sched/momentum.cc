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
  if (schedule.cooldown_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat("momentum schedule: cooldown_steps is ",
                                                   schedule.cooldown_steps, "; the least is 0"));
  }
  return absl::OkStatus();
}

double MomentumAt(const MomentumSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  CHECK_GE(schedule.warmup_steps, 1);
  const int64_t left = std::max<int64_t>(run.total() - step, 0);
  double t = 1;
  if (step < schedule.warmup_steps) {
    t = static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  } else if (left < schedule.cooldown_steps) {
    t = static_cast<double>(left) / static_cast<double>(schedule.cooldown_steps);
  }
  return (1 - t) * schedule.start + t * schedule.end;
}

}  // namespace sched
