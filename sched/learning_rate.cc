#include "sched/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

// Where the progress of most schedules stops, so that it never counts as 1.
constexpr double kLastProgress = 0.9999;

// The factor of the last part that begins before x.
double BaseAt(const std::vector<double>& factors, double x) {
  CHECK(!factors.empty());
  const double parts = static_cast<double>(factors.size());
  size_t part = 0;
  while (part + 1 < factors.size() && x > static_cast<double>(part + 1) / parts) ++part;
  return factors[part];
}

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
  if (schedule.stage_factors.empty()) {
    return absl::InvalidArgumentError("learning rate schedule: it has no stage factor");
  }
  for (size_t i = 0; i < schedule.stage_factors.size(); ++i) {
    const double factor = schedule.stage_factors[i];
    if (std::isfinite(factor) && factor > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("learning rate schedule: stage factor ", i,
                                                   " is ", factor, "; it must be positive"));
  }
  return absl::OkStatus();
}

double LearningRateMultiplier(const LearningRateSchedule& schedule, const RunLength& run,
                              int64_t step) {
  CHECK_GE(step, 0);
  const int64_t steps = schedule.cools_in_extension ? run.total() : run.scheduled_steps;
  const double last = schedule.reaches_floor ? 1 : kLastProgress;
  const double x =
      steps == 0 ? last : std::min(last, static_cast<double>(step) / static_cast<double>(steps));
  const double base = BaseAt(schedule.stage_factors, x);
  // Without a cooldown x = 1 would divide 0 by 0.
  if (x < 1 - schedule.cooldown_fraction || schedule.cooldown_fraction == 0) return base;
  const double w = (1 - x) / schedule.cooldown_fraction;
  return base * w + (1 - w) * schedule.floor;
}

}  // namespace sched
