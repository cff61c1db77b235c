// The global batches of a run, shared by the ranks of this process.
#ifndef TOOLS_TRAINER_BATCH_SOURCE_H_
#define TOOLS_TRAINER_BATCH_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "data/loader.h"

namespace tools {

// Thread-safe. Ranks ask for the steps in order; those that ask for the same step get the same
// batch. A rank is never more than one step ahead of another, as a step needs all of them.
// Positions are remembered for a few steps, since a step's result is known only after later
// batches were asked for.
class BatchSource {
 public:
  using Batch = std::shared_ptr<const data::GlobalBatch>;

  BatchSource(std::unique_ptr<data::TrainLoader> loader, int64_t first_step);

  absl::StatusOr<Batch> Get(int64_t step);
  // The batch of the step that Get was asked for last, of the one before it, or of a later one,
  // which Get will give.
  absl::StatusOr<Batch> Peek(int64_t step);
  // The loader's position before the batch of `step`: the next step, or one of the last four.
  absl::StatusOr<data::LoaderState> StateBefore(int64_t step);
  // What the batches so far left out.
  data::LoaderStats Stats();

 private:
  std::mutex mutex_;
  std::unique_ptr<data::TrainLoader> loader_;
  int64_t step_;  // of batch_
  absl::StatusOr<Batch> batch_;
  absl::StatusOr<Batch> previous_;               // of the step before
  std::map<int64_t, data::LoaderState> before_;  // by step
};

}  // namespace tools

#endif  // TOOLS_TRAINER_BATCH_SOURCE_H_
