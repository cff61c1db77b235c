// --plan: what a run is made of, without running it.
#ifndef TOOLS_TRAINER_PLAN_TEXT_H_
#define TOOLS_TRAINER_PLAN_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/train_config.h"

namespace tools {

// Parameters, groups, owners and padding, the collective schedule, memory of one rank, and FLOPs
// of a step. Plans the memory but allocates none.
absl::StatusOr<std::string> PlanText(const TrainConfig& config);

}  // namespace tools

#endif  // TOOLS_TRAINER_PLAN_TEXT_H_
