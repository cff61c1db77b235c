// One rank's part of a RunTrace: what the trainer tells while it works.
#ifndef TOOLS_TRAINER_RANK_TRACE_H_
#define TOOLS_TRAINER_RANK_TRACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "comm/slot_tree.h"
#include "comm/tracing.h"
#include "data/batcher.h"
#include "kernels/queue.h"
#include "kernels/trace/tracing.h"
#include "tools/trainer/run_trace.h"

namespace tools {

// For the rank's thread. Every call is cheap, and does nothing, where nothing is traced.
class RankTrace : public comm::CollectiveListener {
 public:
  // `run` null: nothing is ever traced. `run` and `queue` outlive the object.
  RankTrace(RunTrace* run, int rank, kernels::Queue& queue)
      : run_(run), rank_(rank), queue_(queue) {}

  // Inside a traced step: each op has to be called, a recorded graph would hide them.
  bool tracing_ops() const { return ops_ != nullptr; }

  // Around a step, `step` as in the log. In a traced one both wait for the device, so that the
  // step's times are its own.
  void BeginStep(int64_t step);
  void EndStep();
  // The step's batch: the work of attention depends on where this rank's documents end.
  void SetBatch(std::shared_ptr<const data::GlobalBatch> batch, comm::SlotRange run);

  // The host begins something, and ends what it did before. In steps that are not traced nothing
  // is noted; between steps everything is. `ops`: the phase of all ops that come now, instead of
  // their own.
  void Phase(const char* name, std::optional<kernels::OpPhase> ops = std::nullopt);
  void EndPhase();

  int64_t Began(absl::string_view name, absl::string_view label, int64_t bytes,
                kernels::Queue& queue) override;
  void Launched(int64_t collective, kernels::Queue& queue) override;
  void Waiting(int64_t collective, kernels::Queue& queue) override;
  void Ended(int64_t collective, kernels::Queue& queue) override;

 private:
  struct Collective {
    CollectiveSpan span;
    int64_t id = 0;
    int64_t begin = 0, launched = 0;  // marks
    int64_t wait = -1, end = -1;      // -1 while it is under way
  };

  Collective* Find(int64_t id);
  // Moves a collective from under_way_ to the step's. Null if it is not there.
  Collective* Continue(int64_t id);

  RunTrace* const run_;
  const int rank_;
  kernels::Queue& queue_;
  int64_t steps_done_ = 0;
  bool in_untraced_step_ = false;

  std::string phase_;  // empty: none
  double phase_begin_s_ = 0;

  std::unique_ptr<kernels::OpTrace> ops_;  // in a traced step
  TracedStep step_;
  std::vector<Collective> collectives_;  // of the traced step
  std::vector<Collective> under_way_;    // begun before it, or outside of traced steps
  int64_t begin_mark_ = 0;               // of the traced step
  int64_t next_collective_ = 0;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_RANK_TRACE_H_
