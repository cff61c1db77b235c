#include "optim/step_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {
namespace {

using kernels::ParameterSpec;

// The specs that Adam updates, or the others, by rows of the table and, within a row, in their own
// order.
std::vector<int> InTableOrder(const OptimizerConfig& config, const std::vector<int>& row_of_spec,
                              bool adam) {
  std::vector<int> order;
  for (size_t i = 0; i < row_of_spec.size(); ++i) {
    if ((config.table[row_of_spec[i]].rule == Rule::kAdam) != adam) continue;
    order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return row_of_spec[a] < row_of_spec[b]; });
  return order;
}

int64_t SecondMoments(const ParamRow& row, const ParameterSpec& spec) {
  int64_t values = 1;
  for (int64_t dim : SecondMomentShape(spec, row.second_moment_as_stored)) values *= dim;
  return values;
}

absl::Status CheckGroup(const Group& group, const OptimizerConfig& config,
                        const std::vector<int>& row_of_spec,
                        const std::vector<ParameterSpec>& specs) {
  const ParameterSpec& first = specs[group.members[0]];
  const ParamRow& row = config.table[row_of_spec[group.members[0]]];
  for (int index : group.members) {
    const ParameterSpec& spec = specs[index];
    const ParamRow& other = config.table[row_of_spec[index]];
    if (other.rule == row.rule && other.comms == row.comms && other.mantissa == row.mantissa &&
        other.rails == row.rails &&
        (row.rule == Rule::kMuon || (other.moment_dtype == row.moment_dtype &&
                                     SecondMoments(other, spec) == SecondMoments(row, first)))) {
      continue;
    }
    const auto describe = [](const ParamRow& r, const ParameterSpec& s) {
      return absl::StrCat(
          s.name, " has ", Name(r.rule), " with ", SecondMoments(r, s), " second moments in ",
          kernels::Name(r.moment_dtype), ", ", Name(r.comms), r.mantissa ? ", with a mantissa" : "",
          r.rule == Rule::kAnvil ? absl::StrCat(", rails engaged from step ", r.rails.engaged_from)
                                 : "");
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer: group ", group.name, ": ", describe(row, first), ", ", describe(other, spec),
        "; they cannot share a group, choose grouping by_label"));
  }
  return absl::OkStatus();
}

// One parameter alone is cut between the matrices of its view, unless they share a second moment.
int64_t UnitOfGroup(const Group& group, const ParamRow& row, const ParameterSpec& first) {
  return group.members.size() == 1 && !row.second_moment_as_stored ? first.rows * first.cols
                                                                   : first.size();
}

// The buffers of each label of `order`, one after the other.
absl::StatusOr<std::vector<int>> BuffersInOrder(const StepLayout& layout,
                                                const std::vector<std::string>& order,
                                                const std::vector<ParameterSpec>& specs) {
  std::vector<int> buffers;
  for (const std::string& label : order) {
    for (int i = 0; i < layout.buffers(); ++i) {
      const BufferLayout& buffer = layout.buffer(i);
      if (specs[buffer.members[0]].label != label) continue;
      for (int member : buffer.members) {
        if (specs[member].label == label) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("optimizer: group ", buffer.label,
                         " has several labels, but scatter_order and "
                         "work_order go by label; choose grouping by_label"));
      }
      buffers.push_back(i);
    }
  }
  return buffers;
}

std::optional<TiedBuffers> FindTied(const StepLayout& layout, const OptimizerConfig& config,
                                    const std::vector<ParameterSpec>& specs) {
  const auto buffer_of = [&](const std::string& label) {
    const auto found = std::find_if(
        layout.adam.begin(), layout.adam.end(),
        [&](const BufferLayout& buffer) { return specs[buffer.members[0]].label == label; });
    return static_cast<int>(found - layout.adam.begin());
  };
  for (const BufferLayout& buffer : layout.adam) {
    const ParamRow& row = config.table[layout.row_of_spec[buffer.members[0]]];
    if (row.tied_to.empty()) continue;
    return TiedBuffers{.source = buffer_of(row.label), .target = buffer_of(row.tied_to)};
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<StepLayout> PlanStep(const OptimizerConfig& config,
                                    const std::vector<ParameterSpec>& specs) {
  StepLayout layout;
  ABSL_ASSIGN_OR_RETURN(layout.row_of_spec, RowsOfSpecs(config, specs));
  layout.grouping = config.grouping;
  for (int index : InTableOrder(config, layout.row_of_spec, true)) {
    const ParameterSpec& spec = specs[index];
    const ParamRow& row = config.table[layout.row_of_spec[index]];
    layout.adam.push_back({.label = spec.name,
                           .members = {index},
                           .dtype = spec.dtype,
                           .member_size = spec.size(),
                           .unit = row.sparse_rows ? spec.shape[1] : 1,
                           .comms = row.comms,
                           .every = row.every,
                           .later = row.later,
                           .defer_gather = row.defer_gather,
                           .sparse_rows = row.sparse_rows});
  }
  layout.groups =
      PlanGroups(config.grouping, specs, InTableOrder(config, layout.row_of_spec, false),
                 config.grouping_ranks);
  for (const Group& group : layout.groups) {
    ABSL_RETURN_IF_ERROR(CheckGroup(group, config, layout.row_of_spec, specs));
    const ParameterSpec& first = specs[group.members[0]];
    const ParamRow& row = config.table[layout.row_of_spec[group.members[0]]];
    layout.muon.push_back({.label = group.name,
                           .members = group.members,
                           .dtype = first.dtype,
                           .member_size = first.size(),
                           .unit = UnitOfGroup(group, row, first),
                           .comms = row.comms,
                           .defer_gather = row.defer_gather});
  }
  if (!config.scatter_order.empty()) {
    ABSL_ASSIGN_OR_RETURN(layout.launch_order, BuffersInOrder(layout, config.scatter_order, specs));
    ABSL_ASSIGN_OR_RETURN(layout.work_order, BuffersInOrder(layout, config.work_order, specs));
  }
  layout.tied = FindTied(layout, config, specs);
  return layout;
}

StepKind KindOfStep(const StepLayout& layout, int64_t step, bool tied) {
  StepKind kind{.due = {}, .tied = tied && layout.tied.has_value()};
  for (int i = 0; i < layout.buffers(); ++i) {
    const BufferLayout& buffer = layout.buffer(i);
    const bool due = (step + 1) % EveryAt(buffer.every, buffer.later, step) == 0;
    kind.due.push_back(due);
    kind.later.push_back(due && IsLater(buffer.later, step));
  }
  return kind;
}

std::vector<Stretch> StretchesOf(const StepLayout& layout) {
  std::set<int64_t> begins = {0};
  for (const BufferLayout& buffer : layout.adam) {
    if (buffer.later.changes()) begins.insert(buffer.later.from_step);
  }
  std::vector<Stretch> stretches;
  for (const int64_t begin : begins) {
    if (!stretches.empty()) stretches.back().end = begin;
    Stretch stretch{.begin = begin, .end = std::numeric_limits<int64_t>::max(), .period = 1};
    for (const BufferLayout& buffer : layout.adam) {
      stretch.period =
          std::lcm(stretch.period, int64_t{EveryAt(buffer.every, buffer.later, begin)});
    }
    stretches.push_back(stretch);
  }
  return stretches;
}

}  // namespace optim
