// The sharded step: every rank holds all weights and gradients, and updates its share.
//
//   ABSL_ASSIGN_OR_RETURN(auto optimizer, optim::ShardedOptimizer::Create(...));
//   ... backward fills parameters[i].grad ...
//   ABSL_RETURN_IF_ERROR(optimizer->CheckFinite(queue));   // optional: stops before any update
//   ABSL_RETURN_IF_ERROR(optimizer->Step({.lr_multiplier = 1, .momentum = 0.95}, queue));
#ifndef OPTIM_SHARDED_OPTIMIZER_H_
#define OPTIM_SHARDED_OPTIMIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/slot_tree.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "optim/adam_part.h"
#include "optim/muon_part.h"
#include "optim/optimizer_state.h"
#include "optim/param_table.h"
#include "optim/step_layout.h"

namespace optim {

struct StepRates {
  double lr_multiplier = 1;  // the schedule's, on every row's lr
  double momentum = 0;       // Muon's
};

struct NonFinite {
  std::string name;   // of the parameter
  int parameter = 0;  // its index
  int leaf = 0;       // of its gradient
  int64_t index = 0;  // flat, within the leaf
};

class ShardedOptimizer {
 public:
  // `parameters`: all of them, the same on each rank; they, `comm` and `backend` outlive the
  // optimizer. `slots`: of the global batch, and `run`, those of this rank, must be
  // comm::SlotsOfRank. Gradients are f32 [leaves, size] with one leaf, the sum of this rank's
  // slots, or, if deterministic, one leaf per slot of `run`; then the update is bitwise the same
  // for every number of ranks.
  //
  // All memory is allocated here. InvalidArgument: more ranks than slots, a label without a row,
  // an unknown orthogonalizer. ResourceExhausted: not enough memory.
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(
      const OptimizerConfig& config, const std::vector<kernels::Parameter>& parameters,
      comm::Communicator& comm, int slots, comm::SlotRange run, bool deterministic,
      kernels::Backend& backend);

  // Collective. One update of all parameters: Adam's complete, then Muon's. Gradients are used
  // up: their contents are undefined afterwards, and the caller clears them for the next step.
  // A zero gradient (or one that a rank never wrote, its memory being zero) counts as zero.
  // Errors are those of the collectives; the weights are then a mixture and the run is over.
  absl::Status Step(const StepRates& rates, kernels::Queue& queue);

  // The first NaN or infinity in this rank's gradients, in the order of the parameters. Not
  // collective; the host waits. To be called before Step.
  std::optional<NonFinite> FirstNonFiniteGradient(kernels::Queue& queue);
  // Collective: all ranks agree. FailedPrecondition names rank, tensor and position.
  absl::Status CheckFinite(kernels::Queue& queue);

  // Collective; every rank gets all of it. The host waits.
  absl::StatusOr<OptimizerState> GatherState(kernels::Queue& queue);
  // Not collective, but every rank loads the same state. FailedPrecondition: a tensor is
  // missing, unknown, or of another dtype or shape; both are named, and nothing was loaded.
  absl::Status LoadState(const OptimizerState& state, kernels::Queue& queue);

  int64_t updates() const { return updates_; }
  int64_t bytes() const { return arena_.plan().bytes(); }
  const StepLayout& layout() const { return layout_; }
  std::string PlanText() const;

 private:
  ShardedOptimizer(const OptimizerConfig& config, const std::vector<kernels::Parameter>& parameters,
                   StepLayout layout, comm::Communicator& comm, const SlotPlan& slots);

  absl::Status RunStep(const StepRates& rates, kernels::Queue& queue);

  const OptimizerConfig config_;
  const std::vector<kernels::Parameter>& parameters_;
  const StepLayout layout_;
  comm::Communicator& comm_;
  const SlotPlan slots_;
  kernels::Arena arena_;
  std::unique_ptr<AdamPart> adam_;
  std::unique_ptr<MuonPart> muon_;
  kernels::Tensor state_stage_;  // f32, one whole padded buffer
  kernels::Tensor found_;        // i64 [parameters * leaves]: FirstNonFinite
  kernels::Tensor agreed_;       // i64 [ranks, 3]
  int64_t updates_ = 0;
};

}  // namespace optim

#endif  // OPTIM_SHARDED_OPTIMIZER_H_
