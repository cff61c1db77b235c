// Facts of the record of 2025-09-23 about rates, groups and collectives.
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/grouping.h"
#include "optim/param_table.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using optim::AdamRates;
using optim::BufferLayout;
using optim::ChunkMembers;
using optim::DescribeStep;
using optim::GradientWire;
using optim::Group;
using optim::Grouping;
using optim::MixedRanks;
using optim::MuonRates;
using optim::OptimizerConfig;
using optim::OwnerOfMember;
using optim::PaddingMembers;
using optim::ParamRow;
using optim::PlanCollectives;
using optim::PlannedCollective;
using optim::PlanStep;
using optim::RowsOfSpecs;
using optim::Rule;
using optim::StepLayout;

Recipe Record() { return FindRecipe("muon_custom_sizing", "full", 50304).value(); }
OptimizerConfig Config() { return Record().optimizer; }
std::vector<kernels::ParameterSpec> Specs() { return model::ParameterSpecs(Record().model); }

// At lr_multiplier 1; Adam's bias correction is gone after many updates.
TEST(ParamTable, T1_46_EffectiveRates) {
  const OptimizerConfig config = Config();
  const std::vector<kernels::ParameterSpec> specs = Specs();
  const auto rows = RowsOfSpecs(config, specs);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamRow& row = config.table[(*rows)[i]];
    const std::string& label = specs[i].label;
    EXPECT_EQ(row.label, label);
    if (row.rule == Rule::kMuon) {
      EXPECT_DOUBLE_EQ(MuonRates(row, specs[i], 1.0).step, 0.05) << specs[i].name;
      EXPECT_EQ(MuonRates(row, specs[i], 1.0).decay, 1.0);
      continue;
    }
    const double want = label == "scalars" ? 0.04 : label == "lm_head" ? 0.008 : 0.6;
    EXPECT_NEAR(AdamRates(row, 1.0, 100000).step, want, 1e-12) << specs[i].name;
    EXPECT_EQ(AdamRates(row, 1.0, 1).decay, 1.0);
  }
}

constexpr int kRanks[] = {1, 2, 4, 8, 16};

std::vector<Group> Groups(Grouping grouping) {
  OptimizerConfig config = Config();
  config.grouping = grouping;
  return PlanStep(config, Specs())->groups;
}

std::vector<int64_t> Sizes(const std::vector<Group>& groups) {
  std::vector<int64_t> sizes;
  for (const Group& group : groups) sizes.push_back(static_cast<int64_t>(group.members.size()));
  return sizes;
}

TEST(Grouping, T1_28_SizesAreDerived) {
  const std::vector<Group> groups = Groups(Grouping::kCustomSizing);
  EXPECT_EQ(Sizes(groups), (std::vector<int64_t>{1, 10, 16, 16}));  // 43 in all
  EXPECT_EQ(groups[0].name, "smear_gate");
  EXPECT_EQ(groups[1].name, "attn_gate");
  EXPECT_EQ(groups[2].name, "attn+mlp");
  EXPECT_EQ(groups[3].name, "mlp");
  EXPECT_NE(groups[2].reason.find("groups of 16"), std::string::npos) << groups[2].reason;
}

TEST(Grouping, T1_29_ChunksAndT1_30_Padding) {
  const std::vector<Group> groups = Groups(Grouping::kCustomSizing);
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
  const std::vector<kernels::ParameterSpec> specs = Specs();
  const Group group = Groups(Grouping::kCustomSizing)[2];
  EXPECT_EQ(MixedRanks(group, specs, 1), (std::vector<int>{0}));
  EXPECT_EQ(MixedRanks(group, specs, 2), (std::vector<int>{1}));
  EXPECT_EQ(MixedRanks(group, specs, 4), (std::vector<int>{2}));
  EXPECT_EQ(MixedRanks(group, specs, 8), (std::vector<int>{}));
  EXPECT_EQ(MixedRanks(group, specs, 16), (std::vector<int>{}));
}

TEST(Grouping, T1_32_LabelGroups) {
  const std::vector<Group> groups = Groups(Grouping::kByLabel);
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
  const std::vector<kernels::ParameterSpec> specs = Specs();
  std::map<std::string, int> owner;
  for (const Group& group : Groups(Grouping::kCustomSizing)) {
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
  const std::vector<Group> groups = Groups(Grouping::kByShape);
  EXPECT_EQ(Sizes(groups), (std::vector<int64_t>{1, 10, 10, 22}));
  EXPECT_EQ(ChunkMembers(10, 8) * 8 + ChunkMembers(22, 8) * 8, 40);
  for (const Group& group : groups) EXPECT_TRUE(MixedRanks(group, Specs(), 8).empty());
}

TEST(StepLayout, ProcessingOrder) {
  const StepLayout layout = *PlanStep(Config(), Specs());
  std::vector<std::string> adam;
  for (const BufferLayout& buffer : layout.adam) adam.push_back(buffer.label);
  EXPECT_EQ(adam, (std::vector<std::string>{"scalars", "lm_head.weight", "embed.weight",
                                            "value_embeds.0.weight", "value_embeds.1.weight",
                                            "value_embeds.2.weight"}));
  EXPECT_EQ(layout.adam[0].Chunk(8), 9);
  EXPECT_EQ(layout.adam[1].Chunk(8), 6288 * 768);
}

// In the dtypes of the PyTorch original: the weights'.
TEST(StepLayout, T1_52_Payloads) {
  const StepLayout layout = *PlanStep(Config(), Specs());
  const std::vector<PlannedCollective> planned =
      PlanCollectives(layout, 8, GradientWire::kWeightDType);
  ASSERT_EQ(planned.size(), size_t{2 * 6 + 2 * 4});
  int64_t adam = 0;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(planned[i].op, "reduce_scatter");
    EXPECT_EQ(planned[6 + i].op, "all_gather");
    adam += planned[i].bytes;
  }
  EXPECT_EQ(adam, 386334720 + 288);
  const int64_t muon[] = {192, 2304, 150994944, 150994944};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(planned[12 + i].op, "reduce_scatter");
    EXPECT_EQ(planned[12 + i].bytes, muon[i]);
    EXPECT_EQ(planned[16 + i].op, "all_gather");
    EXPECT_EQ(planned[16 + i].bytes, muon[i]);
  }
}

TEST(StepLayout, OurGradientsTravelInF32) {
  const StepLayout layout = *PlanStep(Config(), Specs());
  const std::vector<PlannedCollective> planned = PlanCollectives(layout, 8, GradientWire::kF32);
  EXPECT_EQ(planned[1].bytes, 2 * 77266944);
  EXPECT_EQ(planned[7].bytes, 77266944);  // gathers carry weights
  EXPECT_EQ(planned[14].bytes, 150994944);
}

TEST(StepLayout, DescriptionExplains) {
  const OptimizerConfig config = Config();
  const StepLayout layout = *PlanStep(config, Specs());
  const std::string eight = DescribeStep(layout, config, Specs(), 8);
  for (const char* text :
       {"attn+mlp: 16 x 2359296 f32, chunk 2, padding 0", "rank 3: blocks.8.attn.qkvo_w",
        "attn_gate: 10 x 72 bf16, chunk 2, padding 6 (864 B)", "150994944 B  attn+mlp"}) {
    EXPECT_NE(eight.find(text), std::string::npos) << text << " not in\n" << eight;
  }
  const std::string five = DescribeStep(layout, config, Specs(), 5);
  for (const char* text : {"padded by 3 (72 is not divisible by 5)", "rank 2 holds two labels"}) {
    EXPECT_NE(five.find(text), std::string::npos) << text << " not in\n" << five;
  }
}

}  // namespace
}  // namespace tools
