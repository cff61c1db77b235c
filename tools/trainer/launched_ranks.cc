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

}  // namespace tools
