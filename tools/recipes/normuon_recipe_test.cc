// The record of 2025-10-24 against its tables.
#include <algorithm>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

Recipe Record() { return FindRecipe("normuon", "full", 50304).value(); }

optim::ParamRow RowOfLabel(const Recipe& recipe, const std::string& label) {
  const auto& table = recipe.optimizer.table;
  return *std::find_if(table.begin(), table.end(), [&](auto& row) { return row.label == label; });
}

TEST(NorMuonRecipe, RunAndBatch) {
  const Recipe recipe = Record();
  EXPECT_EQ(recipe.schedules.run.total(), 2315);
  EXPECT_EQ(sched::PlanStep(recipe.schedules, 0).batch_tokens, 262'144);
  EXPECT_EQ(recipe.schedules.validation.every, 250);
  EXPECT_EQ(recipe.model.layers.size(), 12u);
}

// The rate falls to the last step, as this record ran; the last decimals are the tables'.
TEST(NorMuonRecipe, LearningRateFallsInTheExtension) {
  const sched::Schedules schedules = Record().schedules;
  const auto at = [&](int64_t step) { return sched::PlanStep(schedules, step).lr_multiplier; };
  EXPECT_EQ(at(1273), 1);
  EXPECT_LT(at(1274), 1);
  EXPECT_NEAR(at(1500), 0.804104, 1e-6);
  EXPECT_NEAR(at(1750), 0.588121, 1e-6);
  EXPECT_NEAR(at(2000), 0.372138, 1e-6);
  EXPECT_NEAR(at(2200), 0.199352, 1e-6);
  EXPECT_NEAR(at(2245), 0.160475, 1e-6);
  EXPECT_NEAR(at(2284), 0.126782, 1e-6);
  EXPECT_NEAR(at(2314), 0.100864, 1e-6);
}

// floor(3 s / 2276): the long window of the rotary table's last extension is for validation alone.
TEST(NorMuonRecipe, WindowsChangeAtThirdsOfOneStepMore) {
  const sched::Schedules schedules = Record().schedules;
  const auto blocks = [&](int64_t step) {
    return sched::PlanStep(schedules, step).windows.long_tokens / 128;
  };
  EXPECT_EQ(blocks(758), 3);
  EXPECT_EQ(blocks(759), 7);
  EXPECT_EQ(blocks(1517), 7);
  EXPECT_EQ(blocks(1518), 11);
  EXPECT_EQ(blocks(2314), 11);
  EXPECT_EQ(blocks(2315), 20);
}

TEST(NorMuonRecipe, Momentum) {
  const sched::Schedules schedules = Record().schedules;
  const auto at = [&](int64_t step) { return sched::PlanStep(schedules, step).momentum; };
  EXPECT_DOUBLE_EQ(at(150), 0.9);
  EXPECT_DOUBLE_EQ(at(2265), 0.95);
  EXPECT_NEAR(at(2314), 0.95 - 0.1 * 49 / 50, 1e-12);
}

TEST(NorMuonRecipe, Table) {
  const Recipe recipe = Record();
  EXPECT_EQ(recipe.optimizer.orthogonalizer, "polar_express");
  for (const char* label : {"attn", "mlp", "attn_gate", "smear_gate"}) {
    const optim::ParamRow row = RowOfLabel(recipe, label);
    EXPECT_EQ(row.rule, optim::Rule::kNorMuon) << label;
    EXPECT_EQ(row.lr, 0.06) << label;
    EXPECT_EQ(row.beta2, 0.95) << label;
    EXPECT_EQ(row.weight_decay, 0) << label;
    EXPECT_EQ(row.moment_dtype, kernels::DType::kF32) << label;
    EXPECT_TRUE(row.named.empty()) << label;
    EXPECT_EQ(row.second_moment_as_stored, std::string(label) == "attn") << label;
  }
  for (const char* label : {"scalars", "lm_head", "embed", "value_embed"}) {
    const optim::ParamRow row = RowOfLabel(recipe, label);
    EXPECT_EQ(row.beta1, 0.65) << label;
    EXPECT_EQ(row.every, 2) << label;
    EXPECT_EQ(row.moment_dtype, kernels::DType::kBF16) << label;
  }
}

// One statistic for each of the 3,072 columns as stored, so that attention and MLP share a group
// as they do in the record.
TEST(NorMuonRecipe, GroupsAndSecondMoments) {
  const Recipe recipe = Record();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  const auto layout = optim::PlanStep(recipe.optimizer, specs);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<size_t> sizes;
  for (const optim::BufferLayout& buffer : layout->muon) sizes.push_back(buffer.members.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 10, 16, 16}));
  const kernels::ParameterSpec qkvo{"qkvo", "attn", {768, 3072}, kernels::DType::kF32, 4, 768, 768};
  EXPECT_EQ(optim::SecondMomentShape(qkvo, true), (std::vector<int64_t>{1, 1, 3072}));
  EXPECT_EQ(optim::SecondMomentShape(qkvo, false), (std::vector<int64_t>{4, 1, 768}));
}

TEST(NorMuonRecipe, DemoIsSmall) {
  const Recipe demo = FindRecipe("normuon", "demo", 384).value();
  EXPECT_EQ(demo.record, "normuon");
  EXPECT_EQ(demo.preset, "demo");
  EXPECT_EQ(demo.schedules.run.total(), 40);
}

}  // namespace
}  // namespace tools
