// What a rank computes in a step besides communication, taken from traced steps: the times that a
// simulation of other numbers of ranks starts from (comm_plan.h).
#ifndef TOOLS_TRAINER_STEP_PHASES_H_
#define TOOLS_TRAINER_STEP_PHASES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/trainer/traced_step.h"

namespace tools {

// Of one buffer of the optimizer's step, by the label of its collectives; of a step in which it
// takes part. Means over the steps of a rank; of the ranks the slowest, since the others wait.
struct BufferPhases {
  std::string label;
  double pack_ms = 0;    // before its reduction is launched
  double update_ms = 0;  // from the reduction's end to the gather's launch
  double unpack_ms = 0;  // after the gather
};

struct StepPhases {
  RunFacts facts;
  // All before the step's first collective, without waits for gathers of the step before: their
  // copies back, forward and backward.
  double backward_ms_per_token = 0;
  std::vector<BufferPhases> buffers;  // in the order of their first reduction
};

// The gaps between the collectives' marks of the traced steps, filed by the mark before (after a
// reduction comes its update, after a gather the copies back) or, where a launch comes next, by the
// mark behind. With facts.deterministic nothing but the facts: the slot tree's collectives are not
// the schedule's.
StepPhases PhasesOf(const std::vector<TracedStep>& steps, const RunFacts& facts);

nlohmann::ordered_json StepPhasesJson(const StepPhases& phases);

// From a file that RunTrace::Write wrote. NotFound; InvalidArgument: not such a file, no traced
// steps in it, or those of a deterministic run.
absl::StatusOr<StepPhases> ReadStepPhases(const std::string& path);

}  // namespace tools

#endif  // TOOLS_TRAINER_STEP_PHASES_H_
