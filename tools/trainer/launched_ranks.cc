#include "tools/trainer/launched_ranks.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tools {

absl::Status CheckWorldSize(const TrainConfig& config, const comm::ProcessRank& where) {
  if (config.world_size == where.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--world_size=", config.world_size, ", but ",
      where.launcher.empty()
          ? std::string("no launcher started this process, so it is the only rank; start it "
                        "with mpirun, torchrun or srun")
          : absl::StrCat(where.launcher, " started ", where.size, " ranks")));
}

}  // namespace tools
