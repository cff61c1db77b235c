// --plan: what a run is made of, without running it.
#ifndef TOOLS_TRAINER_PLAN_TEXT_H_
#define TOOLS_TRAINER_PLAN_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/configure.h"

namespace tools {

// Parameters, groups, owners and padding, the collective schedule, memory of one rank, and FLOPs
// of a step. Plans the memory but allocates none, and needs no device: `configured.card` is what a
// plan for "cuda" is for, and the text says what of the run the card cannot do.
absl::StatusOr<std::string> PlanText(const Configured& configured);

}  // namespace tools

#endif  // TOOLS_TRAINER_PLAN_TEXT_H_
