// How the ranks of a run come to be: threads of this process (--//comm:backend=local), or one
// process each, started by mpirun, torchrun or srun (--//comm:backend=nccl), or by mpirun (mpi). A
// program links one implementation: //tools/trainer:ranks is the one of the flag.
#ifndef TOOLS_TRAINER_RANKS_H_
#define TOOLS_TRAINER_RANKS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm/communicator.h"
#include "tools/trainer/train_config.h"

namespace tools {

// "local", "mpi" or "nccl".
absl::string_view RanksBackend();

// Processes of this run, and which of them this one is. What all ranks of a process share, such
// as the log, belongs to process 0.
struct Processes {
  int rank = 0;
  int size = 1;
  int gpu = 0;  // of this process, where it has one
};

// What the launcher says; InvalidArgument if it contradicts itself (see comm/process_rank.h). Where
// ranks are threads: 0 of 1, and InvalidArgument if a launcher started several processes, since
// each would train alone.
absl::StatusOr<Processes> ProcessesOfRun();

// Calls `run` for each rank of this process, on a thread of its own if there are several, and
// returns when all have come back. `device` is the GPU to use, if any. A rank that fails tells the
// others; of their errors the one is returned that the others follow from. When the collectives
// have failed and a rank still does not come back, the process ends with that error on stderr and
// code 2 (see comm/watchdog.h).
//
// InvalidArgument if config.world_size is not the number of ranks that were launched.
absl::Status RunRanks(const TrainConfig& config,
                      const std::function<absl::Status(comm::Communicator& comm, int device)>& run);

}  // namespace tools

#endif  // TOOLS_TRAINER_RANKS_H_
