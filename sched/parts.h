// Parts of a run that are not equal: where they end, and at which steps they start.
#ifndef SCHED_PARTS_H_
#define SCHED_PARTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sched/run_length.h"

namespace sched {

// The first step s with s / scheduled_steps >= `fraction`, in float64; fractions that should sum to
// a third or so may miss it by 1e-9.
int64_t FirstStepFrom(double fraction, const RunLength& run);

// `ends`: of the parts but the last, as fractions of the scheduled steps. InvalidArgument, in the
// name of `schedule`, unless there is one less than `parts`, and they ascend within (0, 1).
absl::Status ValidateEnds(absl::string_view schedule, const std::vector<double>& ends,
                          size_t parts);

// The part that holds `step`: how many have ended by FirstStepFrom. Never ends.size() + 1.
int PartAt(const std::vector<double>& ends, const RunLength& run, int64_t step);

// Stages of `base_steps` steps in proportion to `weights`, of which stage `grown` is made longer by
// `growth_steps`: modded-nanogpt's mainline after pull request 360. The first steps of all stages,
// and then the number of steps: the i-th is the sum of the first i weights over that of all, times
// base_steps, to the nearest integer, and growth_steps more behind the grown one. CHECKs the range
// of `grown`, and that no weight is negative.
std::vector<int64_t> StageStarts(const std::vector<double>& weights, int64_t base_steps,
                                 size_t grown, int64_t growth_steps);

}  // namespace sched

#endif  // SCHED_PARTS_H_
