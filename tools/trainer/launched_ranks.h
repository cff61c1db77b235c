// Ranks that are processes.
#ifndef TOOLS_TRAINER_LAUNCHED_RANKS_H_
#define TOOLS_TRAINER_LAUNCHED_RANKS_H_

#include "absl/status/status.h"
#include "comm/process_rank.h"
#include "tools/trainer/train_config.h"

namespace tools {

// InvalidArgument if config.world_size is not the number of ranks that were launched.
absl::Status CheckWorldSize(const TrainConfig& config, const comm::ProcessRank& where);

}  // namespace tools

#endif  // TOOLS_TRAINER_LAUNCHED_RANKS_H_
