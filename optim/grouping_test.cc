#include "optim/grouping.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace optim {
namespace {

using kernels::ParameterSpec;

// For any numbers of layers and ranks: every member in exactly one group, and never worse than
// one group for all by what the planner minimises first.
TEST(Grouping, CustomSizingOfAnyCounts) {
  for (int attn : {0, 1, 3, 7, 10, 12}) {
    for (int mlp : {0, 1, 9, 12, 22}) {
      for (int ranks : {1, 3, 5, 8}) {
        std::vector<ParameterSpec> specs;
        std::vector<int> order;
        for (int i = 0; i < attn + mlp; ++i) {
          order.push_back(i);
          specs.push_back({.name = std::to_string(i),
                           .label = i < attn ? "attn" : "mlp",
                           .shape = {8, 32},
                           .matrices = i < attn ? 4 : 1,
                           .rows = 8,
                           .cols = i < attn ? 8 : 32});
        }
        std::vector<int> seen;
        size_t mixed = 0;
        for (const Group& group : PlanGroups(Grouping::kCustomSizing, specs, order, ranks)) {
          seen.insert(seen.end(), group.members.begin(), group.members.end());
          mixed += MixedRanks(group, specs, ranks).size();
        }
        EXPECT_EQ(seen, order);
        if (attn + mlp > 0) {
          EXPECT_LE(mixed, MixedRanks({"all", order, ""}, specs, ranks).size());
        }
      }
    }
  }
}

}  // namespace
}  // namespace optim
