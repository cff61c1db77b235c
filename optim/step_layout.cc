#include "optim/step_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

std::string Dims(const std::vector<int64_t>& dims) {
  std::string text;
  for (int64_t dim : dims) absl::StrAppend(&text, text.empty() ? "[" : ", ", dim);
  return text + "]";
}

void DescribeAdam(const StepLayout& layout, const OptimizerConfig& config,
                  const std::vector<ParameterSpec>& specs, int ranks, std::string* out) {
  for (const BufferLayout& buffer : layout.adam) {
    const ParameterSpec& spec = specs[buffer.members[0]];
    const ParamRow row = RowOf(config.table[layout.row_of_spec[buffer.members[0]]], spec);
    absl::StrAppend(out, "  ", spec.name, " ", kernels::Name(spec.dtype), " ", Dims(spec.shape),
                    " label ", spec.label, ", peak lr ", row.lr * row.lr_mul,
                    row.every > 1 ? absl::StrCat(", every ", row.every, " steps") : "", ", chunk ",
                    buffer.Chunk(ranks), " elements");
    const int64_t padding = buffer.Padded(ranks) - buffer.size();
    if (padding > 0) {
      absl::StrAppend(out, ", padded by ", padding, " in a staging buffer (", buffer.size(),
                      " is not divisible by ", ranks, ")");
    }
    absl::StrAppend(out, "\n");
  }
}

void DescribeGroup(const Group& group, const std::vector<ParameterSpec>& specs, int ranks,
                   std::string* out) {
  const int64_t n = static_cast<int64_t>(group.members.size());
  const int64_t chunk = ChunkMembers(n, ranks), padding = PaddingMembers(n, ranks);
  const ParameterSpec& first = specs[group.members[0]];
  absl::StrAppend(out, "  ", group.name, ": ", n, " x ", first.size(), " ",
                  kernels::Name(first.dtype), ", chunk ", chunk, ", padding ", padding, " (",
                  padding * first.size() * kernels::SizeOf(first.dtype), " B); ", group.reason,
                  "\n");
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StrAppend(out, "    rank ", rank, ":");
    const int64_t begin = std::min(n, rank * chunk), end = std::min(n, begin + chunk);
    for (int64_t i = begin; i < end; ++i) {
      absl::StrAppend(out, " ", specs[group.members[i]].name);
    }
    const int64_t missing = chunk - (end - begin);
    if (missing > 0) absl::StrAppend(out, " (", missing, " padding)");
    absl::StrAppend(out, "\n");
  }
  for (int rank : MixedRanks(group, specs, ranks)) {
    absl::StrAppend(out, "    rank ", rank,
                    " holds two labels: one batched orthogonalisation for each view\n");
  }
}

int64_t SecondMoments(const ParameterSpec& spec) {
  int64_t values = 1;
  for (int64_t dim : SecondMomentShape(spec)) values *= dim;
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
    if (other.rule == row.rule &&
        (row.rule == Rule::kMuon ||
         (other.moment_dtype == row.moment_dtype && SecondMoments(spec) == SecondMoments(first)))) {
      continue;
    }
    const auto describe = [](const ParamRow& r, const ParameterSpec& s) {
      return absl::StrCat(s.name, " has ", Name(r.rule), " with ", SecondMoments(s),
                          " second moments in ", kernels::Name(r.moment_dtype));
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer: group ", group.name, ": ", describe(row, first), ", ", describe(other, spec),
        "; they cannot share a group, choose grouping by_label"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepLayout> PlanStep(const OptimizerConfig& config,
                                    const std::vector<ParameterSpec>& specs) {
  StepLayout layout;
  ABSL_ASSIGN_OR_RETURN(layout.row_of_spec, RowsOfSpecs(config, specs));
  layout.grouping = config.grouping;
  for (int index : InTableOrder(config, layout.row_of_spec, true)) {
    const ParameterSpec& spec = specs[index];
    layout.adam.push_back({.label = spec.name,
                           .members = {index},
                           .dtype = spec.dtype,
                           .member_size = spec.size(),
                           .unit = 1});
  }
  layout.groups =
      PlanGroups(config.grouping, specs, InTableOrder(config, layout.row_of_spec, false),
                 config.grouping_ranks);
  for (const Group& group : layout.groups) {
    ABSL_RETURN_IF_ERROR(CheckGroup(group, config, layout.row_of_spec, specs));
    const ParameterSpec& first = specs[group.members[0]];
    layout.muon.push_back({.label = group.name,
                           .members = group.members,
                           .dtype = first.dtype,
                           .member_size = first.size(),
                           .unit = first.size()});
  }
  return layout;
}

std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, int ranks,
                                               GradientWire wire) {
  std::vector<PlannedCollective> planned;
  const auto reduce = [&](const BufferLayout& b) {
    const kernels::DType dtype = wire == GradientWire::kF32 ? kernels::DType::kF32 : b.dtype;
    planned.push_back({"reduce_scatter", b.label, dtype, b.Padded(ranks) * kernels::SizeOf(dtype)});
  };
  const auto gather = [&](const BufferLayout& b) {
    planned.push_back({"all_gather", b.label, b.dtype, b.Padded(ranks) * kernels::SizeOf(b.dtype)});
  };
  for (const std::vector<BufferLayout>* part : {&layout.adam, &layout.muon}) {
    for (const BufferLayout& buffer : *part) reduce(buffer);
    for (const BufferLayout& buffer : *part) gather(buffer);
  }
  return planned;
}

std::string DescribeStep(const StepLayout& layout, const OptimizerConfig& config,
                         const std::vector<ParameterSpec>& specs, int ranks) {
  std::string out = absl::StrCat("Adam, ", layout.adam.size(), " parameters over ", ranks,
                                 " ranks, in processing order\n");
  DescribeAdam(layout, config, specs, ranks, &out);
  const bool normuon = std::any_of(config.table.begin(), config.table.end(),
                                   [](const auto& row) { return row.rule == Rule::kNorMuon; });
  absl::StrAppend(&out, normuon ? "NorMuon, " : "Muon, ", config.orthogonalizer, ", ",
                  layout.groups.size(), " groups by ", Name(layout.grouping), "\n");
  for (const Group& group : layout.groups) DescribeGroup(group, specs, ranks, &out);
  absl::StrAppend(&out, "Collectives of a step (bytes of the whole padded buffer)\n");
  const std::vector<PlannedCollective> ours = PlanCollectives(layout, ranks, GradientWire::kF32);
  const std::vector<PlannedCollective> narrow =
      PlanCollectives(layout, ranks, GradientWire::kWeightDType);
  int64_t total = 0, narrow_total = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    absl::StrAppendFormat(&out, "  %2d %-14s %-5s %13d B  %s\n", i + 1, ours[i].op,
                          kernels::Name(ours[i].dtype), ours[i].bytes, ours[i].label);
    total += ours[i].bytes;
    narrow_total += narrow[i].bytes;
  }
  absl::StrAppend(&out, "  total ", total, " B; ", narrow_total,
                  " B if gradients travelled in the dtype of their weights\n");
  return out;
}

}  // namespace optim
