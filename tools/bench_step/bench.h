// The measurement behind bench_step.
#ifndef TOOLS_BENCH_STEP_BENCH_H_
#define TOOLS_BENCH_STEP_BENCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/configure.h"

namespace tools {

struct BenchOptions {
  TrackFlags flags;           // training's; steps, metrics and validation are set here
  int64_t stage = 1;          // of the schedules; 1 is the first
  int64_t window_blocks = 0;  // the long window of all steps; 0: the stage's
  int64_t warmup_steps = 3;   // at least 1
  int64_t timed_steps = 10;   // at least 1
  int64_t trace_steps = 3;    // at least 1
  std::string trace;          // where to write a Perfetto trace; empty: nowhere
};

// Measures the ceilings, then trains warm-up, timed and traced steps, and answers with the report
// in Markdown. The training's log goes to standard error. One rank. The full preset without shards
// runs on synthetic ones. InvalidArgument names the flag that is out of range.
absl::StatusOr<std::string> BenchReport(const BenchOptions& options);

}  // namespace tools

#endif  // TOOLS_BENCH_STEP_BENCH_H_
