// Muon's momentum: a linear warm-up, constant, and in some records a linear cooldown at the end.
#ifndef SCHED_MOMENTUM_H_
#define SCHED_MOMENTUM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct MomentumSchedule {
  double start = 0;
  double end = 0;
  int64_t warmup_steps = 1;    // at least 1; may be longer than the run
  int64_t cooldown_steps = 0;  // the last steps of the run, back to `start`; 0: none
};

// InvalidArgument for a momentum outside [0, 1) a warm-up of less than one step, or a
// negative cooldown.
absl::Status Validate(const MomentumSchedule& schedule);

// (1 - t) * start + t * end in float64, with
//   t = step / warmup_steps                   for step < warmup_steps
//   t = (run.total() - step) / cooldown_steps within the last cooldown_steps
//   t = 1                                     else
// `start` at step 0, `end` in between and, with a cooldown, `start` from run.total() on, all
// exactly. CHECKs step >= 0.
double MomentumAt(const MomentumSchedule& schedule, const RunLength& run, int64_t step);

}  // namespace sched

#endif  // SCHED_MOMENTUM_H_
