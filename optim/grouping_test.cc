#include "optim/grouping.h"

#include <algorithm>
#include <map>

#include "gtest/gtest.h"
#include "optim/record_a.h"
#include "optim/step_layout.h"

namespace optim {
namespace {

using kernels::ParameterSpec;

constexpr int kRanks[] = {1, 2, 4, 8, 16};

std::vector<Group> RecordAGroups(Grouping grouping) {
  OptimizerConfig config = RecordAConfig();
  config.grouping = grouping;
  return PlanStep(config, RecordASpecs())->groups;
}

std::vector<int64_t> Sizes(const std::vector<Group>& groups) {
  std::vector<int64_t> sizes;
  for (const Group& group : groups) sizes.push_back(static_cast<int64_t>(group.members.size()));
  return sizes;
}

TEST(Grouping, T1_28_SizesAreDerived) {
  const std::vector<Group> groups = RecordAGroups(Grouping::kCustomSizing);
  EXPECT_EQ(Sizes(groups), (std::vector<int64_t>{1, 10, 16, 16}));  // 43 in all
  EXPECT_EQ(groups[0].name, "smear_gate");
  EXPECT_EQ(groups[1].name, "attn_gate");
  EXPECT_EQ(groups[2].name, "attn+mlp");
  EXPECT_EQ(groups[3].name, "mlp");
  EXPECT_NE(groups[2].reason.find("groups of 16"), std::string::npos) << groups[2].reason;
}

TEST(Grouping, T1_29_ChunksAndT1_30_Padding) {
  const std::vector<Group> groups = RecordAGroups(Grouping::kCustomSizing);
  const int64_t chunks[5][4] = {
      {1, 10, 16, 16}, {1, 5, 8, 8}, {1, 3, 4, 4}, {1, 2, 2, 2}, {1, 1, 1, 1}};
  const int64_t padding[5][4] = {
      {0, 0, 0, 0}, {1, 0, 0, 0}, {3, 2, 0, 0}, {7, 6, 0, 0}, {15, 6, 0, 0}};
  for (int w = 0; w < 5; ++w) {
    for (int g = 0; g < 4; ++g) {
      const int64_t n = static_cast<int64_t>(groups[g].members.size());
      EXPECT_EQ(ChunkMembers(n, kRanks[w]), chunks[w][g]) << kRanks[w] << " ranks, group " << g;
      EXPECT_EQ(PaddingMembers(n, kRanks[w]), padding[w][g]) << kRanks[w] << " ranks, group " << g;
    }
  }
}

TEST(Grouping, T1_31_MixedChunksOfGroup3) {
  const std::vector<ParameterSpec> specs = RecordASpecs();
  const Group group = RecordAGroups(Grouping::kCustomSizing)[2];
  EXPECT_EQ(MixedRanks(group, specs, 1), (std::vector<int>{0}));
  EXPECT_EQ(MixedRanks(group, specs, 2), (std::vector<int>{1}));
  EXPECT_EQ(MixedRanks(group, specs, 4), (std::vector<int>{2}));
  EXPECT_EQ(MixedRanks(group, specs, 8), (std::vector<int>{}));
  EXPECT_EQ(MixedRanks(group, specs, 16), (std::vector<int>{}));
}

TEST(Grouping, T1_32_LabelGroups) {
  const std::vector<Group> groups = RecordAGroups(Grouping::kByLabel);
  std::map<std::string, int64_t> n;
  for (const Group& group : groups) n[group.name] = static_cast<int64_t>(group.members.size());
  const int64_t chunks[5][4] = {
      {10, 22, 1, 10}, {5, 11, 1, 5}, {3, 6, 1, 3}, {2, 3, 1, 2}, {1, 2, 1, 1}};
  for (int w = 0; w < 5; ++w) {
    EXPECT_EQ(ChunkMembers(n.at("attn"), kRanks[w]), chunks[w][0]);
    EXPECT_EQ(ChunkMembers(n.at("mlp"), kRanks[w]), chunks[w][1]);
    EXPECT_EQ(ChunkMembers(n.at("smear_gate"), kRanks[w]), chunks[w][2]);
    EXPECT_EQ(ChunkMembers(n.at("attn_gate"), kRanks[w]), chunks[w][3]);
  }
}

TEST(Grouping, T1_33_Owners) {
  const std::vector<ParameterSpec> specs = RecordASpecs();
  std::map<std::string, int> owner;
  for (const Group& group : RecordAGroups(Grouping::kCustomSizing)) {
    const int64_t n = static_cast<int64_t>(group.members.size());
    for (int64_t i = 0; i < n; ++i) owner[specs[group.members[i]].name] = OwnerOfMember(i, n, 8);
  }
  EXPECT_EQ(owner.at("blocks.8.attn.qkvo_w"), 3);
  EXPECT_EQ(owner.at("blocks.3.mlp.c_fc"), 7);
  EXPECT_EQ(owner.at("blocks.11.mlp.c_proj"), 7);
  EXPECT_EQ(owner.at("blocks.1.mlp.c_fc"), 5);
  EXPECT_EQ(owner.at("smear_gate.weight"), 0);
}

// 10 qkvo and 22 MLP matrices in groups of their own pad to 16 + 24 = 40 at 8 ranks.
TEST(Grouping, ByShapePadsToForty) {
  const std::vector<Group> groups = RecordAGroups(Grouping::kByShape);
  EXPECT_EQ(Sizes(groups), (std::vector<int64_t>{1, 10, 10, 22}));
  EXPECT_EQ(ChunkMembers(10, 8) * 8 + ChunkMembers(22, 8) * 8, 40);
  for (const Group& group : groups) EXPECT_TRUE(MixedRanks(group, RecordASpecs(), 8).empty());
}

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
