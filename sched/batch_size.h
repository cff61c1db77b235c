// Tokens of the global batch: constant within each stage of the run.
#ifndef SCHED_BATCH_SIZE_H_
#define SCHED_BATCH_SIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

struct BatchStage {
  // Of the scheduled steps, > 0; the last of several may have 0: it is that of the extension.
  double fraction = 1;
  int64_t tokens = 0;
};

struct BatchSchedule {
  std::vector<BatchStage> stages = {};
};

// InvalidArgument when there is no stage, a fraction or size is not positive, or the
// fractions do not sum to 1 (to 1e-9); the message states the sum.
absl::Status Validate(const BatchSchedule& schedule);

// Tokens of the batch of `step`: stage i ends before the first step >= scheduled_steps *
// (fraction_0 + ... + fraction_i), so that equal stages change with the parts of the windows; the
// last stage has no end. CHECKs step >= 0.
int64_t BatchTokensAt(const BatchSchedule& schedule, const RunLength& run, int64_t step);

struct BatchStart {
  int64_t first_step = 0;
  int64_t tokens = 0;  // of the batches from here to the next start

  bool operator==(const BatchStart&) const = default;
};

// Step 0 and all steps below run.total() whose size differs from that of the step before, ascending
// (step 0 also in a run of 0 steps). A stage of a very short run that holds no step does not
// appear.
std::vector<BatchStart> BatchStarts(const BatchSchedule& schedule, const RunLength& run);

// Sum of the batches of all steps of the run.
int64_t TrainingTokens(const BatchSchedule& schedule, const RunLength& run);

}  // namespace sched

#endif  // SCHED_BATCH_SIZE_H_
