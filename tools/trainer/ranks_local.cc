#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/local/local.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/ranks.h"

namespace tools {
namespace {

// The first error that is not an echo of another rank's.
class FirstError {
 public:
  void Add(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool echo = absl::IsUnavailable(status);
    if (status_.ok() || (echo_ && !echo)) {
      status_ = status;
      echo_ = echo;
    }
  }
  absl::Status status() const { return status_; }

 private:
  std::mutex mutex_;
  absl::Status status_;
  bool echo_ = false;
};

}  // namespace

absl::string_view RanksBackend() { return "local"; }

absl::StatusOr<Processes> ProcessesOfRun() {
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  if (where.size == 1) return Processes();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", where.rank, " of ", where.size, ": ", where.launcher, " started ", where.size,
      " processes, but the ranks of this build are threads of one process; start one process with "
      "--world_size=",
      where.size, ", or build with --config=mpi, or --config=nccl for one process a GPU; ",
      comm::HowToBeOneRank(where)));
}

absl::Status RunRanks(
    const TrainConfig& config,
    const std::function<absl::Status(comm::Communicator& comm, int device)>& run) {
  comm::Watchdog watchdog;
  // The group compares the ranks' calls, whatever config.comm_check says.
  const std::shared_ptr<comm::LocalGroup> group =
      comm::LocalGroup::Create(config.world_size, config.comm_timeout,
                               [&](const absl::Status& status) { watchdog.Failed(status); });
  std::vector<std::unique_ptr<comm::Communicator>> ends;  // all, before any rank can leave
  for (int rank = 0; rank < config.world_size; ++rank) {
    ends.push_back(group->Join(rank));
  }
  FirstError error;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < config.world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<comm::Communicator> comm = std::move(ends[rank]);
      const absl::Status status = run(*comm, 0);
      if (status.ok()) return;
      error.Add(status);
      comm->Abort(status);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return error.status();
}

}  // namespace tools
