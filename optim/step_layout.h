// The plan of a step: every buffer that is sharded, and the collectives in order. Pure
// arithmetic, for the optimizer itself and for --plan.
#ifndef OPTIM_STEP_LAYOUT_H_
#define OPTIM_STEP_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/parameter.h"
#include "optim/grouping.h"
#include "optim/param_table.h"

namespace optim {

// Parameters that lie one after the other in one buffer, which the ranks share in equal chunks:
// one Adam parameter, cut anywhere, or one Muon group, cut between its members.
struct BufferLayout {
  std::string label;         // of its collectives
  std::vector<int> members;  // indices of specs
  kernels::DType dtype;      // of the weights
  int64_t member_size;       // elements
  int64_t unit;              // a chunk is a whole number of units of so many elements

  int64_t size() const { return static_cast<int64_t>(members.size()) * member_size; }
  int64_t Chunk(int ranks) const { return ChunkMembers(size() / unit, ranks) * unit; }
  int64_t Padded(int ranks) const { return Chunk(ranks) * ranks; }
};

struct StepLayout {
  std::vector<BufferLayout> adam;  // in processing order
  std::vector<BufferLayout> muon;  // likewise, groups[i] is muon[i]
  std::vector<Group> groups;
  std::vector<int> row_of_spec;
  Grouping grouping;
};

// InvalidArgument: see RowsOfSpecs; or a group whose members do not agree on the rule or, being
// NorMuon's, on the dtype and number of their second moments, which share memory.
absl::StatusOr<StepLayout> PlanStep(const OptimizerConfig& config,
                                    const std::vector<kernels::ParameterSpec>& specs);

// What gradients travel as. We send f32, so that any number of ranks agrees to rounding; the
// PyTorch original sends the dtype of the weight.
enum class GradientWire : uint8_t { kF32, kWeightDType };

struct PlannedCollective {
  std::string op;  // "reduce_scatter" or "all_gather"
  std::string label;
  kernels::DType dtype;
  int64_t bytes;  // of the whole padded buffer
};

// In the order in which they are launched.
std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, int ranks,
                                               GradientWire wire);

// For --plan: groups, members, owners, padding, and the schedule with bytes.
std::string DescribeStep(const StepLayout& layout, const OptimizerConfig& config,
                         const std::vector<kernels::ParameterSpec>& specs, int ranks);

}  // namespace optim

#endif  // OPTIM_STEP_LAYOUT_H_
