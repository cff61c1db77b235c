// The multiplier on every group's base learning rate: flat or in stages, then a linear cooldown to
// a floor, flat again in the extension steps.
#ifndef SCHED_LEARNING_RATE_H_
#define SCHED_LEARNING_RATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct LearningRateSchedule {
  double cooldown_fraction = 0;  // of the scheduled steps, in [0, 1]; 0 = no cooldown
  double floor = 0;              // where the cooldown line ends, in [0, 1]
  // The cooldown runs over all steps of the run instead of the scheduled ones, so that the rate
  // still falls in the extension: for comparison only.
  bool cools_in_extension = false;
  // What the cooldown starts from, one per equal part of the steps: larger batches bear larger
  // rates. Not written as {1}: gcc 12 then warns of uninitialized memory.
  std::vector<double> stage_factors = std::vector<double>(1, 1.0);
  // Where parts end, see ValidateEnds; none: they are equal. A part's first step has its own
  // factor.
  std::vector<double> stage_ends = {};
  // The line starts in the whole step floor((1 - cooldown_fraction) n), with all of the base, and
  // falls evenly to the floor in step n. Needs reaches_floor.
  bool cools_from_whole_step = false;
  bool reaches_floor = false;  // x below may become 1, so that the line ends in the floor itself
};

// InvalidArgument, with the value, for one outside its range or not finite, and for no factor or
// one that is not positive.
absl::Status Validate(const LearningRateSchedule& schedule);

// With x = min(0.9999, step / n), n = scheduled_steps (run.total() if cools_in_extension), and
// base = stage_factors[i], i the largest of 0 .. k - 1 with i == 0 or x > i / k, k factors (the
// comparison is strict: a part's first step still has the factor before), in float64 and in this
// order:
//   base                          for x < 1 - cooldown_fraction
//   base * w + (1 - w) * floor    else, w = (1 - x) / cooldown_fraction
//
// Because x stops at 0.9999, the lowest value reached is a little above the floor (0.10018
// with a floor of 0.1 and a cooldown over half of the steps); it holds for every step >= n, past
// the end too. A cooldown fraction
// <= 0.0001 so never cools. With reaches_floor x stops at 1, and the floor is exact from step n
// on, unless cooldown_fraction is 0. With n == 0 the schedule counts as complete (x at its end) at
// every step. With stage_ends, base = stage_factors[PartAt]. With cools_from_whole_step and its
// step s0, for step > s0, the line is base (1 - t) + floor t, t = min(1, (step - s0) / (n - s0)).
// Always finite. CHECKs step >= 0 and that there is a factor.
double LearningRateMultiplier(const LearningRateSchedule& schedule, const RunLength& run,
                              int64_t step);

}  // namespace sched

#endif  // SCHED_LEARNING_RATE_H_
