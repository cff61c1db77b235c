// Until when the embedding is the transposed head: modded-nanogpt, record of 2026-01-18.
#ifndef SCHED_TYING_H_
#define SCHED_TYING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct TyingSchedule {
  double fraction = 0;  // of the scheduled steps, in [0, 1]; 0: never tied
  // Head and embedding are updated in the steps with (step + 1) % update_every == 0. They part
  // after such a step.
  int64_t update_every = 1;
};

// InvalidArgument, with the value, for one outside its range or not finite.
absl::Status Validate(const TyingSchedule& schedule);

// The first step >= ceil(fraction * scheduled_steps) (in float64) that updates, or -1 if never
// tied. After its update the two are independent. It may lie past the end: 1 in a run of 0 steps
// with update_every 2.
int64_t LastTiedStep(const TyingSchedule& schedule, const RunLength& run);

// step <= LastTiedStep. CHECKs step >= 0.
bool IsTied(const TyingSchedule& schedule, const RunLength& run, int64_t step);

}  // namespace sched

#endif  // SCHED_TYING_H_
