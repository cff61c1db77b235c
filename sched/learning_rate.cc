#include "sched/learning_rate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

// Where the progress of a schedule stops, so that it never counts as 1.
constexpr double kLastProgress = 0.9999;

bool InUnitInterval(double x) { return x >= 0 && x <= 1; }  // false for NaN

}  // namespace

absl::Status Validate(const LearningRateSchedule& schedule) {
  if (!InUnitInterval(schedule.cooldown_fraction)) {
    return absl::InvalidArgumentError(absl::StrCat("learning rate schedule: cooldown_fraction ",
                                                   schedule.cooldown_fraction,
                                                   " is outside [0, 1]"));
  }
  if (!InUnitInterval(schedule.floor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate schedule: floor ", schedule.floor, " is outside [0, 1]"));
  }
  return absl::OkStatus();
}

double LearningRateMultiplier(const LearningRateSchedule& schedule, const RunLength& run,
                              int64_t step) {
  CHECK_GE(step, 0);
  const int64_t steps = schedule.cools_in_extension ? run.total() : run.scheduled_steps;
  const double x =
      steps == 0 ? kLastProgress
                 : std::min(kLastProgress, static_cast<double>(step) / static_cast<double>(steps));
  if (x < 1 - schedule.cooldown_fraction) return 1;
  const double w = (1 - x) / schedule.cooldown_fraction;
  return w + (1 - w) * schedule.floor;
}

}  // namespace sched
