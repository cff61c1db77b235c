// The sharded step: every rank holds all weights and gradients, and updates its share.
//
//   ABSL_ASSIGN_OR_RETURN(auto optimizer, optim::ShardedOptimizer::Create(...));
//   optimizer->ClearGradients(queue);
//   ABSL_RETURN_IF_ERROR(optimizer->FinishGathers(queue));
//   ... forward reads the weights, backward adds to parameters[i].grad ...
//   ABSL_RETURN_IF_ERROR(
//       optimizer->Step({.lr_multiplier = 1, .momentum = 0.95, .step = s}, {}, queue));
//
// Between Step and FinishGathers the weights of labels with ParamRow::defer_gather are on their
// way: nobody may read or write them. What here does so, or belongs to a whole update, CHECKs that
// no gather is in flight; such a method says so with (F). Those without it may be called meanwhile.
#ifndef OPTIM_SHARDED_OPTIMIZER_H_
#define OPTIM_SHARDED_OPTIMIZER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "optim/orthogonalizer.h"
#include "optim/param_table.h"
#include "optim/pending_gradients.h"
#include "optim/sparse_rows.h"
#include "optim/step_layout.h"
#include "optim/step_schedule.h"
#include "optim/tied_pair.h"
#include "optim/update_part.h"

namespace optim {

struct StepRates {
  double lr_multiplier = 1;  // the schedule's, on every row's lr
  double momentum = 0;       // of the matrices' rules; see Rails for Anvil's
  int64_t step = 0;          // its index, one more from call to call
  // Whether parameters with ParamRow::tied_to are still the transposes of what they are tied to.
  // Once false, it stays false.
  bool tied = false;
};

// A NaN or infinity in a parameter or its gradient.
struct NonFinite {
  static constexpr int kWeight = -1;

  std::string name;   // of the parameter
  int parameter = 0;  // its index
  int leaf = 0;       // of its gradient, or kWeight: the parameter itself
  int64_t index = 0;  // flat, within the leaf or the parameter
};

// As all ranks know it.
struct AgreedNonFinite {
  NonFinite what;
  int rank = 0;      // that has it; of several the first
  std::string text;  // "gradient of head is not finite at element 17 (rank 1, slots 4 to 7)"
};

class ShardedOptimizer {
 public:
  ~ShardedOptimizer();

  // `parameters`: all of them, the same on each rank; they, `comm` and `backend` outlive the
  // optimizer. `slots`: of the global batch, and `run`, those of this rank, must be
  // comm::SlotsOfRank. Gradients are f32 [leaves, size] with one leaf, the sum of this rank's
  // slots, or, if deterministic, one leaf per slot of `run`; then the update is bitwise the same
  // for every number of ranks.
  //
  // `reads`: what rows the ranks read of tables with ParamRow::sparse_rows; it outlives the
  // optimizer. Null: these are exchanged whole, as they are if deterministic.
  //
  // All memory is allocated here, and the destructor waits for gathers in flight. InvalidArgument:
  // more ranks than slots, a label without a row, an unknown orthogonalizer. ResourceExhausted: not
  // enough memory.
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(
      const OptimizerConfig& config, const std::vector<kernels::Parameter>& parameters,
      comm::Communicator& comm, int slots, comm::SlotRange run, bool deterministic,
      kernels::Backend& backend, RowReads* reads = nullptr);

  // Zeroes the gradients that the latest Step has used up, before the first one all of them. Those
  // of parameters whose row was not due (ParamRow::every) stay, and the next step adds to them.
  // Reads no weights.
  void ClearGradients(kernels::Queue& queue) const { pending_->ClearOthers(queue); }

  // Collective (F). One update of all parameters that are due, in the order of MakeSchedule. Their
  // gradients are used up: the contents are undefined until ClearGradients.
  // A zero gradient (or one that a rank never wrote, its memory being zero) counts as zero.
  // Errors are those of the collectives; the weights are then a mixture and the run is over. Before
  // anything happens, InvalidArgument: tied, but no row is; FailedPrecondition: tied again.
  //
  // guard: i32 [1] on the device, the same value on all ranks, or empty: always on. If it is zero
  // when the queue gets there, no bit of weights and state changes, but updates() counts the step:
  // the host does not know. A run that goes on afterwards has to start from a saved state.
  //
  // queue and guard are the same in each call, and queue outlives the optimizer. A rank that is
  // alone records its update when the same kind of step (what is due, tied or not) comes for the
  // second time, and replays it from then on.
  //
  // When it returns the gathers of MakeSchedule's kFinishLater are in flight; after an error none
  // is. A rank that is alone waits for nobody, and leaves none.
  absl::Status Step(const StepRates& rates, kernels::Tensor guard, kernels::Queue& queue);
  // Waits, in the order of their launches, for the gathers that the latest Step left in flight, and
  // completes the weights. Nothing to do if there are none. Errors as Step's.
  absl::Status FinishGathers(kernels::Queue& queue);
  bool gathers_in_flight() const { return !in_flight_.empty(); }
  // Collective. Tables with sparse_rows have all rows up to date on each rank, not only those that
  // it reads before their next update. Before anybody reads the parameters who is not a step.
  absl::Status GatherTables(kernels::Queue& queue);
  // Off: each op is called again in each step, so that a trace sees it. On at first.
  void set_recording(bool on) { recording_enabled_ = on; }

  // (F) Enqueues the search for NaN and infinity in the weights, which the update before may have
  // left there, and in this rank's gradients; found() gets the answers. Not collective. To be
  // called before Step, which uses up the gradients.
  void LaunchFiniteCheck(kernels::Queue& queue);
  // i64 [parameters * (1 + leaves)], on the device: the first place that is not finite, or -1, of
  // each parameter and then of each one's leaves. Of the latest LaunchFiniteCheck.
  kernels::Tensor found() const { return found_; }
  // `found`: a host copy of found(). The first of them: weights before gradients, then in the order
  // of the parameters.
  std::optional<NonFinite> DecodeFound(const int64_t* found) const;
  // (F) The three in one, of the weights alone; the host waits.
  std::optional<NonFinite> FirstNonFiniteWeight(kernels::Queue& queue);
  // Collective: tells all ranks what each found, and the first of it. The host waits.
  absl::StatusOr<std::optional<AgreedNonFinite>> AgreeOnNonFinite(
      const std::optional<NonFinite>& local, kernels::Queue& queue);
  // (F) The latest `steps` calls of Step met a zero guard, as the host has learnt since. Gradients
  // that waited before them are lost.
  void ForgetUpdates(int64_t steps);
  // (F) The latest call of Step met a zero guard, and the run goes on: it counts as an update by
  // zero gradients of rules that leave weights and moments alone. Zeroes all gradients, those that
  // wait for a later step too, since they may have met those of this one.
  void SkipUpdate(kernels::Queue& queue);
  // Whether a state of now would lack gradients that wait, being lost: LoadState would refuse it.
  bool LacksPendingGradients() const { return pending_->Lacks(updates_); }
  // (F) As newly created: no moments, no momentum, no steps, tied or not. Weights stay.
  void Reset(kernels::Queue& queue);

  // Collective (F); every rank gets all of it. The host waits.
  absl::StatusOr<OptimizerState> GatherState(kernels::Queue& queue);
  // (F) Not collective, but every rank loads the same state. FailedPrecondition: a tensor is
  // missing, unknown, or of another dtype or shape; both are named, and nothing was loaded. Puts
  // gradients that wait for a later step where they were. A state without moments for the source
  // of a tied pair is that of a run that is tied.
  absl::Status LoadState(const OptimizerState& state, kernels::Queue& queue);

  int64_t updates() const { return updates_; }
  int64_t bytes() const { return arena_.plan().bytes(); }
  const StepLayout& layout() const { return layout_; }
  std::string PlanText() const;

 private:
  ShardedOptimizer(const OptimizerConfig& config, const std::vector<kernels::Parameter>& parameters,
                   StepLayout layout, comm::Communicator& comm, const SlotPlan& slots);

  // A buffer of the layout and what is done to it.
  struct Unit {
    UpdatePart* part;
    int index;  // among the part's
    ShardedBuffer& buffer() const { return part->buffer(index); }
    std::vector<ShardedBuffer::Kept> kept() const { return part->KeptOf(index); }
  };
  // kOpen: no step has said so yet.
  enum class Tie : uint8_t { kOpen, kTied, kUntied };

  void LaunchWeightCheck(kernels::Queue& queue);
  std::string TextOf(const AgreedNonFinite& found) const;
  // Makes all parts, which plan their memory in `plan`.
  void MakeParts(std::unique_ptr<Orthogonalizer> orthogonalizer, kernels::ArenaPlan* plan);
  void MakeSparse(RowReads* reads, kernels::ArenaPlan* plan);
  absl::Status FollowTie(bool tied, kernels::Queue& queue);
  absl::Status Update(const StepKind& kind, kernels::Tensor guard, kernels::Queue& queue);
  absl::Status Run(const ScheduleEntry& entry, kernels::Tensor guard, kernels::Queue& queue);
  // Waits for all that is under way and forgets its outcome.
  void Drain(kernels::Queue& queue);
  void CheckFinished(const char* method) const;
  // As Run, of a buffer of sparse_.
  absl::Status RunSparse(const ScheduleEntry& entry, kernels::Tensor guard, kernels::Queue& queue);
  // Buffers with moments of their own.
  std::vector<Unit> UnitsWithState(Tie tie) const;
  std::set<std::string> StateNames(int64_t updates, Tie tie) const;

  const OptimizerConfig config_;
  const std::vector<kernels::Parameter>& parameters_;
  const StepLayout layout_;
  comm::Communicator& comm_;
  const SlotPlan slots_;
  kernels::Arena arena_;
  std::unique_ptr<AdamPart> adam_;
  std::unique_ptr<MuonPart> muon_;
  std::vector<Unit> units_;               // of the layout's buffers
  std::unique_ptr<TiedPair> pair_;        // null if no row is tied
  std::unique_ptr<SparseTables> sparse_;  // null if all exchanges are of whole buffers
  Tie tie_ = Tie::kOpen;
  std::unique_ptr<PendingGradients> pending_;
  kernels::Tensor state_stage_;  // f32, one whole padded buffer
  kernels::Tensor found_;        // i64 [parameters * (1 + leaves)]
  kernels::Tensor agreed_;       // i64 [ranks, 3]
  int64_t updates_ = 0;
  bool recording_enabled_ = true;
  // Of the update, where there is only one rank, for each kind of step. Null once it has run op by
  // op.
  std::map<StepKind, std::unique_ptr<kernels::Recording>> recordings_;
  const void* recorded_guard_ = nullptr;
  std::vector<ShardedBuffer*> in_flight_;  // whose gathers are, in the order of their launches
  kernels::Queue* queue_ = nullptr;        // Step's
};

}  // namespace optim

#endif  // OPTIM_SHARDED_OPTIMIZER_H_
