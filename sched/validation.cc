#include "sched/validation.h"

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {

absl::Status Validate(const ValidationSchedule& schedule) {
  if (schedule.every < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("validation: every ", schedule.every, " steps; the least is 1"));
  }
  return absl::OkStatus();
}

bool IsValidationStep(const ValidationSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  CHECK_GE(schedule.every, 1);
  if (step >= run.total()) return step == run.total();
  return step % schedule.every == 0;
}

int64_t ValidationCount(const ValidationSchedule& schedule, const RunLength& run) {
  CHECK_GE(schedule.every, 1);
  const int64_t before_last = (run.total() + schedule.every - 1) / schedule.every;
  return before_last + 1;
}

}  // namespace sched
