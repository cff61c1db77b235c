// Ranks that are processes.
#ifndef TOOLS_TRAINER_LAUNCHED_RANKS_H_
#define TOOLS_TRAINER_LAUNCHED_RANKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "comm/process_rank.h"
#include "tools/trainer/train_config.h"

namespace tools {

// InvalidArgument if config.world_size is not the number of ranks that were launched. `launchers`:
// what can start them, such as "mpirun or srun".
absl::Status CheckWorldSize(const TrainConfig& config, const comm::ProcessRank& where,
                            absl::string_view launchers);

// InvalidArgument if several ranks of a build whose collectives are NCCL's are to compute on CPUs,
// with what to do instead: NCCL moves data between GPUs alone.
absl::Status CheckRanksHaveGpus(const TrainConfig& config, const comm::ProcessRank& where);

}  // namespace tools

#endif  // TOOLS_TRAINER_LAUNCHED_RANKS_H_
