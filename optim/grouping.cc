#include "optim/grouping.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"
#ifdef OPTIM_WITH_CUSTOM_SIZING
#include "optim/custom_sizing.h"
#endif

namespace optim {
namespace {

using kernels::ParameterSpec;

// What the members of a group have in common.
std::string Key(Grouping grouping, const ParameterSpec& spec) {
  const std::string shape =
      absl::StrCat(kernels::Name(spec.dtype), " ", spec.matrices, "x", spec.rows, "x", spec.cols);
  return grouping == Grouping::kByLabel ? absl::StrCat(spec.label, " ", shape) : shape;
}

std::vector<Group> ByKey(Grouping grouping, const std::vector<ParameterSpec>& specs,
                         const std::vector<int>& order) {
  std::vector<Group> groups;
  std::map<std::string, size_t> group_of;
  for (int index : order) {
    const std::string key = Key(grouping, specs[index]);
    const auto [place, is_new] = group_of.try_emplace(key, groups.size());
    if (is_new) groups.push_back({.name = {}, .members = {}, .reason = absl::StrCat("all ", key)});
    groups[place->second].members.push_back(index);
  }
  return groups;
}

std::vector<Group> RoundRobin(const std::vector<ParameterSpec>& specs,
                              const std::vector<int>& order, size_t ranks) {
  const auto alike = [&](int a, int b) {
    return specs[a].size() == specs[b].size() && specs[a].dtype == specs[b].dtype;
  };
  std::vector<Group> groups;
  for (int index : order) {
    if (groups.empty() || groups.back().members.size() == ranks ||
        !alike(groups.back().members[0], index)) {
      groups.push_back(
          {.name = {},
           .members = {},
           .reason = absl::StrCat("at most ", ranks, ", one for each of ", ranks, " ranks")});
    }
    groups.back().members.push_back(index);
  }
  return groups;
}

// "attn", "attn+mlp", and a number where that is not unique.
void NameGroups(const std::vector<ParameterSpec>& specs, std::vector<Group>* groups) {
  std::set<std::string> used;
  for (Group& group : *groups) {
    std::string name, last;
    for (int index : group.members) {
      if (specs[index].label == last) continue;
      last = specs[index].label;
      absl::StrAppend(&name, name.empty() ? "" : "+", last);
    }
    group.name = name;
    for (int n = 2; !used.insert(group.name).second; ++n) group.name = absl::StrCat(name, " ", n);
  }
}

}  // namespace

std::vector<Group> PlanGroups(Grouping grouping, const std::vector<ParameterSpec>& specs,
                              const std::vector<int>& order, int ranks) {
  CHECK_GE(ranks, 1);
  std::vector<Group> groups;
#ifdef OPTIM_WITH_CUSTOM_SIZING
  if (grouping == Grouping::kCustomSizing) groups = CustomSizing(specs, order, ranks);
#else
  CHECK(grouping != Grouping::kCustomSizing) << "built with --//optim:grouping=by_shape";
#endif
  if (grouping == Grouping::kRoundRobin) groups = RoundRobin(specs, order, ranks);
  if (grouping == Grouping::kByShape || grouping == Grouping::kByLabel) {
    groups = ByKey(grouping, specs, order);
  }
  NameGroups(specs, &groups);
  return groups;
}

std::vector<int> MixedRanks(const Group& group, const std::vector<ParameterSpec>& specs,
                            int ranks) {
  const int64_t n = static_cast<int64_t>(group.members.size());
  std::vector<int> mixed;
  for (int64_t member = 1; member < n; ++member) {
    const int owner = OwnerOfMember(member, n, ranks);
    if (owner != OwnerOfMember(member - 1, n, ranks)) continue;
    if (specs[group.members[member]].label == specs[group.members[member - 1]].label) continue;
    if (mixed.empty() || mixed.back() != owner) mixed.push_back(owner);
  }
  return mixed;
}

}  // namespace optim
