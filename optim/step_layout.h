// The plan of a step: every buffer that is sharded, and the collectives in order. Pure
// arithmetic, for the optimizer itself and for --plan.
#ifndef OPTIM_STEP_LAYOUT_H_
#define OPTIM_STEP_LAYOUT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/parameter.h"
#include "optim/grouping.h"
#include "optim/param_table.h"

namespace optim {

// Parameters that lie one after the other in one buffer, which the ranks share in equal chunks:
// one Adam parameter, cut anywhere; one Muon group, cut between its members; or one Muon parameter
// alone, cut between the matrices of its view. Or replicated Adam parameters of any sizes, whose
// gradients and moments only lie so (OptimizerConfig::flat_replicated): a flat buffer.
struct BufferLayout {
  std::string label;         // of its collectives
  std::vector<int> members;  // indices of specs
  kernels::DType dtype;      // of the weights
  int64_t member_size;       // elements; 0 in a flat buffer
  int64_t unit;              // a chunk is a whole number of units of so many elements
  Comms comms = Comms::kSharded;
  int every = 1;                         // as ParamRow::every
  LaterCadence later = {};               // as ParamRow::later
  bool defer_gather = false;             // as ParamRow::defer_gather
  bool sparse_rows = false;              // as ParamRow::sparse_rows; `unit` is a row
  std::vector<int64_t> flat_sizes = {};  // of a flat buffer: of each member

  bool flat() const { return !flat_sizes.empty(); }
  int64_t MemberSize(size_t i) const { return flat() ? flat_sizes[i] : member_size; }
  int64_t size() const;
  int64_t units() const { return size() / unit; }
  bool replicated() const { return comms == Comms::kReplicated; }
  // Elements that a rank updates: all of a replicated buffer.
  int64_t Chunk(int ranks) const {
    return replicated() ? size() : ChunkMembers(units(), ranks) * unit;
  }
  int64_t Padded(int ranks) const { return replicated() ? size() : Chunk(ranks) * ranks; }
};

// Buffers whose parameters are each other's transpose while StepRates::tied.
struct TiedBuffers {
  int source = 0;  // its gradient goes to the target's, and it gets the target's weights
  int target = 0;
};

struct StepLayout {
  std::vector<BufferLayout> adam;  // in processing order; flat ones first, bf16 before f32
  std::vector<BufferLayout> muon;  // likewise, groups[i] is muon[i]
  std::vector<Group> groups;
  std::vector<int> row_of_spec;
  Grouping grouping;
  // Of three phases: buffers by scatter_order and by work_order. Empty: the step of two parts.
  std::vector<int> launch_order, work_order;
  std::optional<TiedBuffers> tied;

  // Buffers by number: Adam's, then Muon's.
  int buffers() const { return static_cast<int>(adam.size() + muon.size()); }
  const BufferLayout& buffer(int i) const {
    const size_t index = static_cast<size_t>(i);
    return index < adam.size() ? adam[index] : muon[index - adam.size()];
  }
  bool three_phases() const { return !launch_order.empty(); }
};

// InvalidArgument: see RowsOfSpecs; or a group whose members do not agree on the rule, on comms, on
// having a mantissa, on their rails or, being NorMuon's or Anvil's, on the dtype and number of
// their second moments, which share memory; or a group of several labels in a step of three phases.
absl::StatusOr<StepLayout> PlanStep(const OptimizerConfig& config,
                                    const std::vector<kernels::ParameterSpec>& specs);

// What a step's collectives and ops depend on.
struct StepKind {
  std::vector<bool> due;  // of the buffers
  bool tied = false;      // with a tied pair only
  // Of the buffers: due, and by the later cadence, so with its betas.
  std::vector<bool> later = {};
  friend auto operator<=>(const StepKind&, const StepKind&) = default;
};
StepKind KindOfStep(const StepLayout& layout, int64_t step, bool tied);

// Steps between two changes of a cadence, or after the last one, and after how many of them what is
// due repeats.
struct Stretch {
  int64_t begin = 0;
  int64_t end = 0;  // that of the last one is INT64_MAX
  int64_t period = 1;
};
std::vector<Stretch> StretchesOf(const StepLayout& layout);

// What gradients travel as. We send f32, so that any number of ranks agrees to rounding; the
// PyTorch original sends the dtype of the weight.
enum class GradientWire : uint8_t { kF32, kWeightDType };

struct PlannedCollective {
  std::string op;  // "reduce_scatter", "all_gather", "all_reduce" or "all_to_all_rows"
  std::string label;
  kernels::DType dtype;
  int64_t bytes;          // of the whole padded buffer; all_to_all_rows moves at most so many
  bool deferred = false;  // a gather that is in flight when the step ends
};

// In the order in which they are launched.
std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, const StepKind& kind,
                                               int ranks, GradientWire wire);
// Of a step in which everything is due and nothing is tied.
std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, int ranks,
                                               GradientWire wire);

// `config` as a run of it exchanges gradients: without sparse_rows if there is but one rank, or if
// the slot tree adds. With `why`, what --plan says about it.
OptimizerConfig RowsAsRun(const OptimizerConfig& config, int ranks, bool deterministic,
                          std::string* why = nullptr);

// For --plan: groups, members, owners, padding, and the schedule of each kind of step with bytes.
std::string DescribeStep(const StepLayout& layout, const OptimizerConfig& config,
                         const std::vector<kernels::ParameterSpec>& specs, int ranks);

}  // namespace optim

#endif  // OPTIM_STEP_LAYOUT_H_
