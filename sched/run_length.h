// How long a run is: scheduled steps, over which learning rate and windows run their
// course, then extension steps at the values reached.
//
// A step is the zero-based index s of the training loop: 0 <= s < total() trains, and
// s == total() is the index of the last validation, after all updates.
#ifndef SCHED_RUN_LENGTH_H_
#define SCHED_RUN_LENGTH_H_

#include <cstdint>

#include "absl/status/status.h"

namespace sched {

// Nothing in this folder has a record's numbers as defaults: what has no neutral value begins as
// one that Validate refuses.
struct RunLength {
  int64_t scheduled_steps = 0;
  int64_t extension_steps = 0;

  int64_t total() const { return scheduled_steps + extension_steps; }
};

// InvalidArgument when a count is negative. A run of 0 steps is valid: it only validates.
absl::Status Validate(const RunLength& run);

// The run of `total_steps` steps with the proportions of `run`: the extension is
// ScaledSteps of the old one, the scheduled steps are the rest. Rescaling to run.total()
// gives `run` itself. CHECKs that run.total() > 0 and total_steps >= 0.
RunLength Rescaled(const RunLength& run, int64_t total_steps);

// steps * new_total / old_total to the nearest integer, halves up. CHECKs the signs.
int64_t ScaledSteps(int64_t steps, int64_t old_total, int64_t new_total);

}  // namespace sched

#endif  // SCHED_RUN_LENGTH_H_
