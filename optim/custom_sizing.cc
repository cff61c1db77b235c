#include "optim/custom_sizing.h"

#include <algorithm>
#include <compare>

#include "absl/strings/str_cat.h"

namespace optim {
namespace {

using kernels::ParameterSpec;

struct Cost {
  int64_t mixed = 0;
  int64_t padding = 0;
  int64_t groups = 0;
  auto operator<=>(const Cost&) const = default;
};

std::vector<Group> Cut(const std::vector<int>& pool, int64_t size) {
  std::vector<Group> groups;
  for (size_t begin = 0; begin < pool.size(); begin += size) {
    const size_t end = std::min(pool.size(), begin + size);
    Group group;
    group.members.assign(pool.begin() + begin, pool.begin() + end);
    groups.push_back(std::move(group));
  }
  return groups;
}

Cost CostOf(const std::vector<Group>& groups, const std::vector<ParameterSpec>& specs, int ranks) {
  Cost cost;
  for (const Group& group : groups) {
    cost.mixed += static_cast<int64_t>(MixedRanks(group, specs, ranks).size());
    cost.padding += PaddingMembers(static_cast<int64_t>(group.members.size()), ranks);
    ++cost.groups;
  }
  return cost;
}

bool OneLabel(const std::vector<int>& pool, const std::vector<ParameterSpec>& specs) {
  return std::all_of(pool.begin(), pool.end(),
                     [&](int i) { return specs[i].label == specs[pool[0]].label; });
}

std::vector<Group> CutPool(const std::vector<int>& pool, const std::vector<ParameterSpec>& specs,
                           int ranks) {
  const int64_t n = static_cast<int64_t>(pool.size());
  if (OneLabel(pool, specs)) {
    std::vector<Group> groups = Cut(pool, n);
    groups[0].reason = "no neighbouring label has its size";
    return groups;
  }
  std::vector<Group> best = Cut(pool, 1);
  Cost lowest = CostOf(best, specs, ranks);
  int64_t best_size = 1;
  for (int64_t size = 2; size <= n; ++size) {
    std::vector<Group> groups = Cut(pool, size);
    const Cost cost = CostOf(groups, specs, ranks);
    if (cost < lowest) {
      best = std::move(groups);
      lowest = cost;
      best_size = size;
    }
  }
  for (Group& group : best) {
    group.reason = absl::StrCat("pool of ", n, " cut into groups of ", best_size, ": at ", ranks,
                                " ranks ", lowest.mixed, " mixed chunks, ", lowest.padding,
                                " padding members in ", lowest.groups, " groups");
  }
  return best;
}

}  // namespace

std::vector<Group> CustomSizing(const std::vector<ParameterSpec>& specs,
                                const std::vector<int>& order, int ranks) {
  std::vector<Group> groups;
  size_t begin = 0;
  while (begin < order.size()) {
    const ParameterSpec& first = specs[order[begin]];
    size_t end = begin;
    while (end < order.size() && specs[order[end]].size() == first.size() &&
           specs[order[end]].dtype == first.dtype) {
      ++end;
    }
    const std::vector<int> pool(order.begin() + begin, order.begin() + end);
    for (Group& group : CutPool(pool, specs, ranks)) groups.push_back(std::move(group));
    begin = end;
  }
  return groups;
}

}  // namespace optim
