// What one step of one rank consisted of, and when.
#ifndef TOOLS_TRAINER_TRACED_STEP_H_
#define TOOLS_TRAINER_TRACED_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/trace/tracing.h"

namespace tools {

// A span of time, in seconds since the RunTrace was made.
struct HostSpan {
  std::string name;
  double begin_s = 0;
  double end_s = 0;
};

// From the moment the queue reached the call to the moment it could use the result. Several may
// be under way at once. One that the step leaves in flight has a span in two steps: its hidden time
// up to this one's end, and what the step that waits for it has of it.
struct CollectiveSpan {
  std::string name;   // "all_gather"
  std::string label;  // what the data is
  int64_t bytes = 0;
  double begin_s = 0;
  double launched_s = 0;  // the call no longer holds the queue up
  double wait_s = 0;      // the queue has nothing else to do
  double end_s = 0;
  bool continued = false;  // from an earlier step: begin_s and launched_s are this step's begin
  double called_s = 0;     // only if continued: when the queue reached the call

  double call_s() const { return continued ? called_s : begin_s; }
  // The queue stood still for it; the rest of the time it did something else.
  double exposed_s() const { return (launched_s - begin_s) + (end_s - wait_s); }
  double hidden_s() const { return wait_s - launched_s; }
};

// One traced step of one rank.
struct TracedStep {
  int rank = 0;
  int64_t step = 0;
  int64_t tokens = 0;                  // of the rank's slots
  double begin_s = 0;                  // the device had nothing to do
  double end_s = 0;                    // and again
  std::vector<kernels::TracedOp> ops;  // their times, too, since the RunTrace was made
  std::vector<CollectiveSpan> collectives;
};

// Which run it was: for those who read the file.
struct RunFacts {
  std::string record, preset, device;
  int ranks = 0;
  int slots = 0;  // of a batch
  bool deterministic = false;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_TRACED_STEP_H_
