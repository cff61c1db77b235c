// What of a layout is for people to read: the collectives and --plan.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "optim/step_layout.h"
#include "optim/step_schedule.h"

namespace optim {
namespace {

using kernels::ParameterSpec;

std::string Dims(const std::vector<int64_t>& dims) {
  std::string text;
  for (int64_t dim : dims) absl::StrAppend(&text, text.empty() ? "[" : ", ", dim);
  return text + "]";
}

// One line for each member.
void DescribeAdamBuffer(const StepLayout& layout, const BufferLayout& buffer,
                        const OptimizerConfig& config, const std::vector<ParameterSpec>& specs,
                        int ranks, std::string* out) {
  for (int member : buffer.members) {
    const ParameterSpec& spec = specs[member];
    const ParamRow row = RowOf(config.table[layout.row_of_spec[member]], spec);
    absl::StrAppend(out, "  ", spec.name, " ", kernels::Name(spec.dtype), " ", Dims(spec.shape),
                    " label ", spec.label, ", peak lr ", row.lr * row.lr_mul,
                    row.every > 1 ? absl::StrCat(", every ", row.every, " steps") : "");
    if (row.later.changes()) {
      absl::StrAppend(out, ", from step ", row.later.from_step, " on every ", row.later.every);
    }
    if (buffer.flat()) {
      absl::StrAppend(out, ", ", spec.size(), " elements of ", buffer.label, ", replicated\n");
      continue;
    }
    absl::StrAppend(out, ", chunk ", buffer.Chunk(ranks), " elements");
    const int64_t padding = buffer.Padded(ranks) - buffer.size();
    if (padding > 0) {
      absl::StrAppend(out, ", padded by ", padding, " (", buffer.size(), " is not divisible by ",
                      ranks, ")");
    }
    if (buffer.replicated()) absl::StrAppend(out, ", replicated");
    if (!row.tied_to.empty()) absl::StrAppend(out, ", tied to ", row.tied_to, " at first");
    if (buffer.sparse_rows) absl::StrAppend(out, ", only rows that ranks read are exchanged");
    absl::StrAppend(out, "\n");
  }
}

// What of a group rank `rank` owns.
std::string OwnedText(const BufferLayout& buffer, const std::vector<ParameterSpec>& specs,
                      int ranks, int rank) {
  if (buffer.replicated()) return " all, replicated";
  std::string text;
  const int64_t n = buffer.units(), chunk = ChunkMembers(n, ranks);
  const int64_t begin = std::min(n, rank * chunk), end = std::min(n, begin + chunk);
  const bool bank = buffer.unit < buffer.member_size;
  if (bank && begin < end) {
    absl::StrAppend(&text, " ", specs[buffer.members[0]].name, ", matrices ", begin, " to ",
                    end - 1);
  }
  for (int64_t i = begin; !bank && i < end; ++i) {
    absl::StrAppend(&text, " ", specs[buffer.members[i]].name);
  }
  const int64_t missing = chunk - (end - begin);
  if (missing > 0) absl::StrAppend(&text, " (", missing, " padding)");
  return text;
}

void DescribeGroup(const Group& group, const BufferLayout& buffer,
                   const std::vector<ParameterSpec>& specs, int ranks, std::string* out) {
  const int64_t padding = buffer.Padded(ranks) - buffer.size();
  const ParameterSpec& first = specs[group.members[0]];
  absl::StrAppend(out, "  ", group.name, ": ", buffer.units(), " x ", buffer.unit, " ",
                  kernels::Name(first.dtype), ", chunk ", buffer.Chunk(ranks) / buffer.unit,
                  ", padding ", padding / buffer.unit, " (", padding * kernels::SizeOf(first.dtype),
                  " B); ", group.reason, "\n");
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StrAppend(out, "    rank ", rank, ":", OwnedText(buffer, specs, ranks, rank), "\n");
  }
  for (int rank : MixedRanks(group, specs, ranks)) {
    absl::StrAppend(out, "    rank ", rank,
                    " holds two labels: one batched orthogonalisation for each view\n");
  }
}

// "NorMuon", or several.
std::string MatrixRules(const OptimizerConfig& config) {
  std::string rules;
  const std::pair<Rule, const char*> names[] = {
      {Rule::kMuon, "Muon"}, {Rule::kNorMuon, "NorMuon"}, {Rule::kAnvil, "Anvil"}};
  for (const auto& [rule, name] : names) {
    const bool used = std::any_of(config.table.begin(), config.table.end(),
                                  [rule = rule](const ParamRow& row) { return row.rule == rule; });
    if (used) absl::StrAppend(&rules, rules.empty() ? "" : " and ", name);
  }
  return rules.empty() ? "No matrices" : rules;
}

bool SameSchedule(const StepLayout& layout, const StepKind& a, const StepKind& b) {
  const std::vector<ScheduleEntry> one = MakeSchedule(layout, a), two = MakeSchedule(layout, b);
  return std::equal(one.begin(), one.end(), two.begin(), two.end(),
                    [](const ScheduleEntry& x, const ScheduleEntry& y) {
                      return x.action == y.action && x.buffer == y.buffer;
                    });
}

// The kinds of the stretch's steps, those with one schedule together.
void AppendKinds(const StepLayout& layout, const Stretch& stretch,
                 std::vector<std::pair<std::string, StepKind>>* kinds) {
  const int64_t end = std::min(stretch.end, stretch.begin + stretch.period);
  std::vector<bool> told(end - stretch.begin, false);
  for (int64_t first = stretch.begin; first < end; ++first) {
    if (told[first - stretch.begin]) continue;
    const StepKind tied = KindOfStep(layout, first, true);
    const StepKind untied = KindOfStep(layout, first, false);
    std::string name = "steps ";
    for (int64_t step = first; step < end; ++step) {
      if (KindOfStep(layout, step, false) != untied) continue;
      told[step - stretch.begin] = true;
      absl::StrAppend(&name, step, ", ");
    }
    const int64_t again = first + stretch.period;
    if (again < stretch.end) absl::StrAppend(&name, again, ", ");
    name += "...";
    const bool last = stretch.end == std::numeric_limits<int64_t>::max();
    if (!last) absl::StrAppend(&name, " before ", stretch.end);
    if (SameSchedule(layout, tied, untied)) {
      kinds->emplace_back(name, untied);
    } else {
      kinds->emplace_back(name + " while tied", tied);
      kinds->emplace_back(name + " once untied", untied);
    }
  }
}

// The kinds of steps of a run, with what to call them. A step of two parts is described as if all
// were due.
std::vector<std::pair<std::string, StepKind>> KindsOfSteps(const StepLayout& layout) {
  const StepKind all{.due = std::vector<bool>(layout.buffers(), true)};
  if (!layout.three_phases()) return {{"a step", all}};
  std::vector<std::pair<std::string, StepKind>> kinds;
  for (const Stretch& stretch : StretchesOf(layout)) AppendKinds(layout, stretch, &kinds);
  return kinds;
}

void DescribeCollectives(const StepLayout& layout, const std::string& name, const StepKind& kind,
                         int ranks, std::string* out) {
  absl::StrAppend(out, "Collectives of ", name, " (bytes of the whole padded buffer)\n");
  const std::vector<PlannedCollective> ours =
      PlanCollectives(layout, kind, ranks, GradientWire::kF32);
  const std::vector<PlannedCollective> narrow =
      PlanCollectives(layout, kind, ranks, GradientWire::kWeightDType);
  int64_t total = 0, narrow_total = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const bool rows = ours[i].op == "all_to_all_rows";
    absl::StrAppendFormat(out, "  %2d %-15s %-5s %13d B  %s%s%s\n", i + 1, ours[i].op,
                          kernels::Name(ours[i].dtype), ours[i].bytes, ours[i].label,
                          rows ? ", at most" : "",
                          ours[i].deferred ? ", waited for before the next step" : "");
    total += ours[i].bytes;
    narrow_total += narrow[i].bytes;
  }
  absl::StrAppend(out, "  total ", total, " B; ", narrow_total,
                  " B if gradients travelled in the dtype of their weights\n");
}

}  // namespace

std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, const StepKind& kind,
                                               int ranks, GradientWire wire) {
  std::vector<PlannedCollective> planned;
  for (const ScheduleEntry& entry : MakeSchedule(layout, kind)) {
    const BufferLayout& b = layout.buffer(entry.buffer);
    const auto add = [&](const char* op, kernels::DType dtype, bool deferred = false) {
      planned.push_back({op, b.label, dtype, b.Padded(ranks) * kernels::SizeOf(dtype), deferred});
    };
    if (entry.action == ScheduleEntry::Action::kReduce) {
      add(b.replicated()  ? "all_reduce"
          : b.sparse_rows ? "all_to_all_rows"
                          : "reduce_scatter",
          wire == GradientWire::kF32 ? kernels::DType::kF32 : b.dtype);
    } else if (entry.action == ScheduleEntry::Action::kUpdate && !b.replicated()) {
      add(b.sparse_rows ? "all_to_all_rows" : "all_gather", b.dtype, b.defer_gather);
    }
  }
  return planned;
}

OptimizerConfig RowsAsRun(const OptimizerConfig& config, int ranks, bool deterministic,
                          std::string* why) {
  std::vector<std::string> labels;
  for (const ParamRow& row : config.table) {
    if (row.sparse_rows) labels.push_back(row.label);
  }
  if (labels.empty() || (ranks > 1 && !deterministic)) return config;
  if (why != nullptr) {
    *why = absl::StrCat("Tables of which few rows are read (", absl::StrJoin(labels, ", "), "): ",
                        deterministic ? "exchanged whole, as the slot tree adds whole gradients\n"
                                      : "nothing to exchange on one rank\n");
  }
  return WithoutSparseRows(config);
}

std::vector<PlannedCollective> PlanCollectives(const StepLayout& layout, int ranks,
                                               GradientWire wire) {
  return PlanCollectives(layout, {.due = std::vector<bool>(layout.buffers(), true)}, ranks, wire);
}

std::string DescribeStep(const StepLayout& layout, const OptimizerConfig& config,
                         const std::vector<ParameterSpec>& specs, int ranks) {
  size_t parameters = 0;
  for (const BufferLayout& buffer : layout.adam) parameters += buffer.members.size();
  std::string out = absl::StrCat("Adam, ", parameters, " parameters over ", ranks,
                                 " ranks, in processing order\n");
  for (const BufferLayout& buffer : layout.adam) {
    DescribeAdamBuffer(layout, buffer, config, specs, ranks, &out);
  }
  absl::StrAppend(&out, MatrixRules(config), ", ", config.orthogonalizer, ", ",
                  layout.groups.size(), " groups by ", Name(layout.grouping), "\n");
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    DescribeGroup(layout.groups[i], layout.muon[i], specs, ranks, &out);
  }
  for (const auto& [name, kind] : KindsOfSteps(layout)) {
    DescribeCollectives(layout, name, kind, ranks, &out);
  }
  return out;
}

}  // namespace optim
