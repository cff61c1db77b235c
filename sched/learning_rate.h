// The multiplier on every group's base learning rate: flat, then a linear cooldown to a
// floor, flat again in the extension steps.
#ifndef SCHED_LEARNING_RATE_H_
#define SCHED_LEARNING_RATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct LearningRateSchedule {
  double cooldown_fraction = 0.5;  // of the scheduled steps, in [0, 1]; 0 = no cooldown
  double floor = 0.1;              // where the cooldown line ends, in [0, 1]
  // The cooldown runs over all steps of the run instead of the scheduled ones, so that the rate
  // still falls in the extension: for comparison only.
  bool cools_in_extension = false;
};

// InvalidArgument, with the value, for one outside its range or not finite.
absl::Status Validate(const LearningRateSchedule& schedule);

// With x = min(0.9999, step / n), n = scheduled_steps (run.total() if cools_in_extension), in
// float64 and in this order:
//   1                      for x < 1 - cooldown_fraction
//   w + (1 - w) * floor    else, w = (1 - x) / cooldown_fraction
//
// Because x stops at 0.9999, the lowest value reached is a little above the floor (0.10018
// with the defaults); it holds for every step >= n, past the end too. A cooldown fraction
// <= 0.0001 so never cools. With n == 0 the schedule counts as complete (x = 0.9999) at every step.
// Always finite. CHECKs step >= 0.
double LearningRateMultiplier(const LearningRateSchedule& schedule, const RunLength& run,
                              int64_t step);

}  // namespace sched

#endif  // SCHED_LEARNING_RATE_H_
