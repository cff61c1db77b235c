// Muon's momentum: a linear warm-up, then constant.
#ifndef SCHED_MOMENTUM_H_
#define SCHED_MOMENTUM_H_

#include <cstdint>

#include "absl/status/status.h"

namespace sched {

struct MomentumSchedule {
  double start = 0.85;
  double end = 0.95;
  int64_t warmup_steps = 300;  // at least 1; may be longer than the run
};

// InvalidArgument for a momentum outside [0, 1) or a warm-up of less than one step.
absl::Status Validate(const MomentumSchedule& schedule);

// (1 - t) * start + t * end with t = min(step / warmup_steps, 1), in float64: `start` at step
// 0 and `end` from warmup_steps on, both exactly. CHECKs step >= 0.
double MomentumAt(const MomentumSchedule& schedule, int64_t step);

}  // namespace sched

#endif  // SCHED_MOMENTUM_H_
