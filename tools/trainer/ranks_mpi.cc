#include <memory>
#include <utility>

#include "comm/checking.h"
#include "comm/mpi/mpi.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/launched_ranks.h"
#include "tools/trainer/ranks.h"

namespace tools {

absl::string_view RanksBackend() { return "mpi"; }

absl::StatusOr<Processes> ProcessesOfRun() {
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  return Processes{.rank = where.rank, .size = where.size, .gpu = 0};
}

absl::Status RunRanks(
    const TrainConfig& config,
    const std::function<absl::Status(comm::Communicator& comm, int device)>& run) {
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  ABSL_RETURN_IF_ERROR(CheckWorldSize(config, where, "mpirun"));
  comm::Watchdog watchdog;  // outlives the communicator
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<comm::Communicator> comm,
                        comm::MakeMpi(where, config.comm_timeout, [&](const absl::Status& status) {
                          watchdog.Failed(status);
                        }));
  comm::Communicator* const engine = comm.get();
  if (config.comm_check) comm = comm::MakeChecking(std::move(comm));
  absl::Status status = run(*comm, 0);
  // The communicator's own end waits for the others too, but cannot say that one of them is lost.
  // Not compared among the ranks: that takes a queue, and the run's is gone.
  if (status.ok()) status = engine->Barrier("the end of the run");
  // All ranks agree on an interrupt, and leave in good order.
  if (!status.ok() && !absl::IsCancelled(status)) comm->Abort(status);
  return status;
}

}  // namespace tools
