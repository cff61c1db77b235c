// When the trainer validates.
#ifndef SCHED_VALIDATION_H_
#define SCHED_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct ValidationSchedule {
  int64_t every = 0;  // steps, at least 1
};

// InvalidArgument for a cadence of less than one step.
absl::Status Validate(const ValidationSchedule& schedule);

// True for step 0, every `every`-th step, and run.total(), the last one. Validation at a step
// sees the parameters after that many updates. False past the end. CHECKs step >= 0.
bool IsValidationStep(const ValidationSchedule& schedule, const RunLength& run, int64_t step);

// How often a whole run validates: 15 times with 1680 steps and every = 125, once in 0 steps.
int64_t ValidationCount(const ValidationSchedule& schedule, const RunLength& run);

}  // namespace sched

#endif  // SCHED_VALIDATION_H_
