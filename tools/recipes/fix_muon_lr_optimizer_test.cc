// Facts of the record of 2025-10-27 about groups, rates and state.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/grouping.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using optim::ChunkMembers;
using optim::Group;
using optim::Grouping;
using optim::IsDue;
using optim::MixedRanks;
using optim::MuonRates;
using optim::OptimizerConfig;
using optim::ParamRow;
using optim::PlanStep;
using optim::Rates;
using optim::RowOf;
using optim::RowsOfSpecs;
using optim::Rule;
using optim::SecondMomentShape;
using optim::StepLayout;

Recipe Record() { return FindRecipe("fix_muon_lr", "full", 50304).value(); }
OptimizerConfig Config() { return Record().optimizer; }
std::vector<kernels::ParameterSpec> Specs() { return model::ParameterSpecs(Record().model); }

const kernels::ParameterSpec& Spec(const std::vector<kernels::ParameterSpec>& specs,
                                   const std::string& name) {
  for (const kernels::ParameterSpec& spec : specs) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << name;
  return specs.front();
}

TEST(FixMuonLROptimizer, T1_28_GroupsAreThoseOfTheRecordBefore) {
  const StepLayout layout = *PlanStep(Config(), Specs());
  const size_t want[] = {1, 10, 16, 16};
  ASSERT_EQ(layout.groups.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(layout.groups[i].members.size(), want[i]);
  for (const Group& group : layout.groups) EXPECT_TRUE(MixedRanks(group, Specs(), 8).empty());
}

// One group per label, in the order of the table, for numbers of ranks other than 8.
TEST(FixMuonLROptimizer, T1_32_LabelGroups) {
  OptimizerConfig config = Config();
  config.grouping = Grouping::kByLabel;
  const StepLayout layout = *PlanStep(config, Specs());
  std::vector<std::string> names;
  for (const Group& group : layout.groups) names.push_back(group.name);
  EXPECT_EQ(names, (std::vector<std::string>{"smear_gate", "attn_gate", "attn", "mlp"}));
  const int ranks[] = {1, 2, 4, 16};
  const int64_t chunks[][4] = {{1, 10, 10, 22}, {1, 5, 5, 11}, {1, 3, 3, 6}, {1, 1, 1, 2}};
  for (int i = 0; i < 4; ++i) {
    for (int g = 0; g < 4; ++g) {
      const auto n = static_cast<int64_t>(layout.groups[g].members.size());
      EXPECT_EQ(ChunkMembers(n, ranks[i]), chunks[i][g]) << names[g] << ", " << ranks[i];
    }
    for (const Group& group : layout.groups) {
      EXPECT_TRUE(MixedRanks(group, Specs(), ranks[i]).empty()) << group.name;
    }
  }
}

TEST(FixMuonLROptimizer, T1_38_SecondMomentShapes) {
  const std::vector<kernels::ParameterSpec> specs = Specs();
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.attn.qkvo_w")), (Shape{4, 1, 768}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.mlp.c_fc")), (Shape{1, 1, 3072}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.mlp.c_proj")), (Shape{1, 1, 3072}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.attn.attn_gate.weight")), (Shape{1, 1, 12}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "smear_gate.weight")), (Shape{1, 1, 12}));
  // Two members a rank at 8: 8 squares of attention, 2 of the MLP, 2 gates.
  const StepLayout layout = *PlanStep(Config(), specs);
  EXPECT_EQ(2 * SecondMomentShape(Spec(specs, "blocks.3.attn.qkvo_w"))[0], 8);
  EXPECT_EQ(layout.muon[3].Chunk(8), 2 * 768 * 3072);
}

// The statistic is over rows where the matrix as stored is not wider than high.
TEST(FixMuonLROptimizer, AxisFollowsTheStoredShape) {
  kernels::ParameterSpec tall{"tall", "mlp", {3072, 768}, kernels::DType::kF32, 1, 3072, 768};
  EXPECT_EQ(SecondMomentShape(tall), (std::vector<int64_t>{1, 3072, 1}));
  kernels::ParameterSpec square{"square", "mlp", {768, 768}, kernels::DType::kF32, 1, 768, 768};
  EXPECT_EQ(SecondMomentShape(square), (std::vector<int64_t>{1, 768, 1}));
}

TEST(FixMuonLROptimizer, T1_46_RatesOfTheFirstStep) {
  const OptimizerConfig config = Config();
  const std::vector<kernels::ParameterSpec> specs = Specs();
  const std::vector<int> rows = *RowsOfSpecs(config, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamRow row = RowOf(config.table[rows[i]], specs[i]);
    if (row.rule == Rule::kAdam) continue;
    const bool up = specs[i].name.find("c_fc") != std::string::npos;
    const Rates rates = MuonRates(row, specs[i], 1.0);
    EXPECT_DOUBLE_EQ(rates.step, up ? 0.06 : 0.03) << specs[i].name;
    EXPECT_EQ(rates.decay, 1.0) << specs[i].name;
  }
}

TEST(FixMuonLROptimizer, T1_47_NumbersOfUpdates) {
  int64_t adam = 0;
  const ParamRow row = Config().table[0];
  for (int64_t step = 0; step < 2285; ++step) {
    adam += IsDue(row, step);
    EXPECT_EQ(IsDue(row, step), step % 2 == 1);
  }
  EXPECT_EQ(adam, 1142);
}

}  // namespace
}  // namespace tools
