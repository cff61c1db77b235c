// Several processes of one program on this machine, as the ranks of one job.
#ifndef TOOLS_LAUNCH_JOB_H_
#define TOOLS_LAUNCH_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tools {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  // the program's path, and its arguments
  // How long the other ranks have to end by themselves once one has failed.
  absl::Duration grace = absl::Seconds(10);
};

// Runs the job and returns its exit code: that of the rank which was the first to fail (128 + N if
// signal N ended it), else 0. Unavailable if a process cannot be started.
//
// Each rank finds its place in torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID); those of other launchers are taken away. Its standard
// input is empty. Standard output is rank 0's alone; what another rank prints there goes to
// standard error, where each line of a rank begins with "[rank N] ".
//
// SIGINT, SIGTERM and SIGHUP are passed on to all ranks, which then end in their own time; a second
// one, if it is not SIGHUP, starts the grace period. When it has passed, SIGKILL. A SIGHUP that is
// ignored, as under nohup, stays ignored. Ranks do not outlive this process.
absl::StatusOr<int> RunJob(const LaunchOptions& options);

}  // namespace tools

#endif  // TOOLS_LAUNCH_JOB_H_
