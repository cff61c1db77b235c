#include "tools/trainer/launched_ranks.h"

#include "absl/strings/str_cat.h"

namespace tools {

absl::Status CheckWorldSize(const TrainConfig& config, const comm::ProcessRank& where,
                            absl::string_view launchers) {
  if (config.world_size == where.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--world_size=", config.world_size, ", but ",
      where.launcher.empty()
          ? absl::StrCat("no launcher started this process, so it is the only rank; start it with ",
                         launchers)
          : absl::StrCat(where.launcher, " started ", where.size, " ranks")));
}

absl::Status CheckRanksHaveGpus(const TrainConfig& config, const comm::ProcessRank& where) {
  if (where.size == 1 || config.device != "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--device=cpu on ", where.size, " ranks, which ", where.launcher,
      " started: ranks of this build (--config=nccl) need a GPU each; on CPUs start one process "
      "with --world_size=",
      where.size, " of a build without --config=nccl, or several of one with --config=mpi"));
}

}  // namespace tools
