// Facts of the record of 2025-10-27 about groups, rates and state.
#include "optim/record_b.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "optim/grouping.h"
#include "optim/step_layout.h"

namespace optim {
namespace {

const kernels::ParameterSpec& Spec(const std::vector<kernels::ParameterSpec>& specs,
                                   const std::string& name) {
  for (const kernels::ParameterSpec& spec : specs) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << name;
  return specs.front();
}

TEST(RecordB, T1_28_GroupsAreThoseOfRecordA) {
  const StepLayout layout = *PlanStep(RecordBConfig(), RecordASpecs());
  const size_t want[] = {1, 10, 16, 16};
  ASSERT_EQ(layout.groups.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(layout.groups[i].members.size(), want[i]);
  for (const Group& group : layout.groups)
    EXPECT_TRUE(MixedRanks(group, RecordASpecs(), 8).empty());
}

// One group per label, in the order of the table, for numbers of ranks other than 8.
TEST(RecordB, T1_32_LabelGroups) {
  OptimizerConfig config = RecordBConfig();
  config.grouping = Grouping::kByLabel;
  const StepLayout layout = *PlanStep(config, RecordASpecs());
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
      EXPECT_TRUE(MixedRanks(group, RecordASpecs(), ranks[i]).empty()) << group.name;
    }
  }
}

TEST(RecordB, T1_38_SecondMomentShapes) {
  const std::vector<kernels::ParameterSpec> specs = RecordASpecs();
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.attn.qkvo_w")), (Shape{4, 1, 768}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.mlp.c_fc")), (Shape{1, 1, 3072}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.mlp.c_proj")), (Shape{1, 1, 3072}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "blocks.3.attn.attn_gate.weight")), (Shape{1, 1, 12}));
  EXPECT_EQ(SecondMomentShape(Spec(specs, "smear_gate.weight")), (Shape{1, 1, 12}));
  // Two members a rank at 8: 8 squares of attention, 2 of the MLP, 2 gates.
  const StepLayout layout = *PlanStep(RecordBConfig(), specs);
  EXPECT_EQ(2 * SecondMomentShape(Spec(specs, "blocks.3.attn.qkvo_w"))[0], 8);
  EXPECT_EQ(layout.muon[3].Chunk(8), 2 * 768 * 3072);
}

// The statistic is over rows where the matrix as stored is not wider than high.
TEST(RecordB, AxisFollowsTheStoredShape) {
  kernels::ParameterSpec tall{"tall", "mlp", {3072, 768}, kernels::DType::kF32, 1, 3072, 768};
  EXPECT_EQ(SecondMomentShape(tall), (std::vector<int64_t>{1, 3072, 1}));
  kernels::ParameterSpec square{"square", "mlp", {768, 768}, kernels::DType::kF32, 1, 768, 768};
  EXPECT_EQ(SecondMomentShape(square), (std::vector<int64_t>{1, 768, 1}));
}

TEST(RecordB, T1_46_RatesOfTheFirstStep) {
  const OptimizerConfig config = RecordBConfig();
  const std::vector<kernels::ParameterSpec> specs = RecordASpecs();
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

TEST(RecordB, T1_47_NumbersOfUpdates) {
  int64_t adam = 0;
  const ParamRow row = RecordBConfig().table[0];
  for (int64_t step = 0; step < 2285; ++step) {
    adam += IsDue(row, step);
    EXPECT_EQ(IsDue(row, step), step % 2 == 1);
  }
  EXPECT_EQ(adam, 1142);
}

}  // namespace
}  // namespace optim
