#include "sched/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sched/parts.h"
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

double CooledFromWholeStep(const LearningRateSchedule& schedule, const RunLength& run, double base,
                           int64_t step) {
  if (schedule.cooldown_fraction == 0) return base;
  const int64_t n = run.scheduled_steps;
  const auto start =
      static_cast<int64_t>(std::floor((1 - schedule.cooldown_fraction) * static_cast<double>(n)));
  if (step < n && step <= start) return base;
  const double t =
      step >= n ? 1 : static_cast<double>(step - start) / static_cast<double>(n - start);
  return base * (1 - t) + schedule.floor * t;
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
  if (!schedule.stage_ends.empty()) {
    const absl::Status s =
        ValidateEnds("learning rate schedule", schedule.stage_ends, schedule.stage_factors.size());
    if (!s.ok()) return s;
  }
  if (schedule.cools_from_whole_step && (!schedule.reaches_floor || schedule.cools_in_extension)) {
    return absl::InvalidArgumentError(
        "learning rate schedule: cools_from_whole_step needs reaches_floor and goes without "
        "cools_in_extension");
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
  const double base = schedule.stage_ends.empty()
                          ? BaseAt(schedule.stage_factors, x)
                          : schedule.stage_factors[PartAt(schedule.stage_ends, run, step)];
  if (schedule.cools_from_whole_step) return CooledFromWholeStep(schedule, run, base, step);
  // Without a cooldown x = 1 would divide 0 by 0.
  if (x < 1 - schedule.cooldown_fraction || schedule.cooldown_fraction == 0) return base;
  const double w = (1 - x) / schedule.cooldown_fraction;
  return base * w + (1 - w) * schedule.floor;
}

}  // namespace sched
