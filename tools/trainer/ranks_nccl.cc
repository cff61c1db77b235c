#include <memory>
#include <utility>

#include "comm/checking.h"
#include "comm/nccl/nccl.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/launched_ranks.h"
#include "tools/trainer/ranks.h"

namespace tools {

absl::string_view RanksBackend() { return "nccl"; }

absl::StatusOr<Processes> ProcessesOfRun() {
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  Processes processes{.rank = where.rank, .size = where.size, .gpu = 0};
  // Without a GPU for it the process cannot run; that is for OpenDevice to say.
  const absl::StatusOr<int> gpu = comm::DeviceOfRank(where);
  if (gpu.ok()) processes.gpu = *gpu;
  return processes;
}

absl::Status RunRanks(
    const TrainConfig& config,
    const std::function<absl::Status(comm::Communicator& comm, int device)>& run) {
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  ABSL_RETURN_IF_ERROR(CheckWorldSize(config, where, "mpirun, torchrun, srun or //tools:launch"));
  ABSL_RETURN_IF_ERROR(CheckRanksHaveGpus(config, where));
  ABSL_ASSIGN_OR_RETURN(const int device, comm::DeviceOfRank(where));
  comm::Watchdog watchdog;  // outlives the communicator
  ABSL_ASSIGN_OR_RETURN(
      std::unique_ptr<comm::Communicator> comm,
      comm::MakeNccl(where, device, config.comm_timeout,
                     [&](const absl::Status& status) { watchdog.Failed(status); }));
  if (config.comm_check) comm = comm::MakeChecking(std::move(comm));
  const absl::Status status = run(*comm, device);
  // All ranks agree on an interrupt; one that is still in its last barrier has to see it end.
  if (!status.ok() && !absl::IsCancelled(status)) comm->Abort(status);
  return status;
}

}  // namespace tools
