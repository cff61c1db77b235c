#include "sched/tying.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {

absl::Status Validate(const TyingSchedule& schedule) {
  if (!(schedule.fraction >= 0 && schedule.fraction <= 1)) {  // also NaN
    return absl::InvalidArgumentError(
        absl::StrCat("tying schedule: fraction ", schedule.fraction, " is outside [0, 1]"));
  }
  if (schedule.update_every < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tying schedule: update_every is ",
                                                   schedule.update_every, "; the least is 1"));
  }
  return absl::OkStatus();
}

int64_t LastTiedStep(const TyingSchedule& schedule, const RunLength& run) {
  CHECK_GE(schedule.update_every, 1);
  if (schedule.fraction == 0) return -1;
  const int64_t first =
      std::llround(std::ceil(schedule.fraction * static_cast<double>(run.scheduled_steps)));
  const int64_t every = schedule.update_every;
  return first / every * every + every - 1;
}

bool IsTied(const TyingSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  return step <= LastTiedStep(schedule, run);
}

}  // namespace sched
