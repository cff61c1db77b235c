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

// Whether the row's updates can share a flat buffer: not those of a tied pair, whose gradients add.
bool IsFlat(const OptimizerConfig& config, const ParamRow& row) {
  if (!config.flat_replicated || row.comms != Comms::kReplicated || row.mantissa ||
      !row.tied_to.empty()) {
    return false;
  }
  return std::none_of(config.table.begin(), config.table.end(),
                      [&](const ParamRow& other) { return other.tied_to == row.label; });
}

// The flat buffers of those of `adam` that can share one: due in the same steps, of one dtype, with
// moments of one dtype and one rule of decay; none with a mantissa.
std::vector<BufferLayout> FlatBuffers(const OptimizerConfig& config,
                                      const std::vector<int>& row_of_spec,
                                      const std::vector<ParameterSpec>& specs,
                                      const std::vector<int>& adam) {
  std::vector<BufferLayout> buffers;
  for (int index : adam) {
    const ParamRow& row = config.table[row_of_spec[index]];
    if (!IsFlat(config, row)) continue;
    const auto shares = [&](const BufferLayout& buffer) {
      const ParamRow& other = config.table[row_of_spec[buffer.members[0]]];
      return buffer.dtype == specs[index].dtype && other.every == row.every &&
             other.later == row.later && other.moment_dtype == row.moment_dtype &&
             other.cautious_decay == row.cautious_decay;
    };
    auto found = std::find_if(buffers.begin(), buffers.end(), shares);
    if (found == buffers.end()) {
      found = buffers.insert(found, {.label = {},
                                     .members = {},
                                     .dtype = specs[index].dtype,
                                     .member_size = 0,
                                     .unit = 1,
                                     .comms = Comms::kReplicated,
                                     .every = row.every,
                                     .later = row.later});
    }
    found->members.push_back(index);
    found->flat_sizes.push_back(specs[index].size());
  }
  std::stable_partition(buffers.begin(), buffers.end(), [](const BufferLayout& buffer) {
    return buffer.dtype == kernels::DType::kBF16;
  });
  int number = 0;  // of the dtype's
  for (size_t i = 0; i < buffers.size(); ++i) {
    number = i > 0 && buffers[i].dtype == buffers[i - 1].dtype ? number + 1 : 1;
    buffers[i].label = absl::StrCat("flat ", kernels::Name(buffers[i].dtype),
                                    number > 1 ? absl::StrCat(" ", number) : "");
  }
  return buffers;
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

// The buffers of each label of `order`, one after the other; a flat one where its first label is.
absl::StatusOr<std::vector<int>> BuffersInOrder(const StepLayout& layout,
                                                const std::vector<std::string>& order,
                                                const std::vector<ParameterSpec>& specs) {
  std::vector<int> buffers;
  for (const std::string& label : order) {
    const auto has_label = [&](int member) { return specs[member].label == label; };
    for (int i = 0; i < layout.buffers(); ++i) {
      const BufferLayout& buffer = layout.buffer(i);
      if (std::none_of(buffer.members.begin(), buffer.members.end(), has_label)) continue;
      if (std::find(buffers.begin(), buffers.end(), i) != buffers.end()) continue;
      if (!buffer.flat() && !std::all_of(buffer.members.begin(), buffer.members.end(), has_label)) {
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

int64_t BufferLayout::size() const {
  return flat() ? std::accumulate(flat_sizes.begin(), flat_sizes.end(), int64_t{0})
                : static_cast<int64_t>(members.size()) * member_size;
}

absl::StatusOr<StepLayout> PlanStep(const OptimizerConfig& config,
                                    const std::vector<ParameterSpec>& specs) {
  StepLayout layout;
  ABSL_ASSIGN_OR_RETURN(layout.row_of_spec, RowsOfSpecs(config, specs));
  layout.grouping = config.grouping;
  const std::vector<int> adam = InTableOrder(config, layout.row_of_spec, true);
  layout.adam = FlatBuffers(config, layout.row_of_spec, specs, adam);
  for (int index : adam) {
    if (IsFlat(config, config.table[layout.row_of_spec[index]])) continue;
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
    // The flat ones have the first numbers.
    const auto others =
        std::stable_partition(layout.launch_order.begin(), layout.launch_order.end(),
                              [&](int buffer) { return layout.buffer(buffer).flat(); });
    std::sort(layout.launch_order.begin(), others);
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
