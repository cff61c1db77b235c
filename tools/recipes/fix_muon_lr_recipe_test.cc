// The record of 2025-10-27.
#include <map>
#include <string>
#include <vector>

#include "data/batcher.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

Recipe Record() { return FindRecipe("fix_muon_lr", "full", 50304).value(); }

// With the scalars padded for 8 ranks, as the fact counts them.
TEST(FixMuonLR, T1_02_T1_28_ParametersAndGroups) {
  const Recipe recipe = Record();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  int64_t total = 0;
  for (const kernels::ParameterSpec& spec : specs) total += spec.size();
  EXPECT_EQ(total + 2, 268'665'628);
  const auto layout = optim::PlanStep(recipe.optimizer, specs);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<size_t> sizes;
  for (const optim::Group& group : layout->groups) sizes.push_back(group.members.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 10, 16, 16}));
}

TEST(FixMuonLR, T1_14_T1_16_T1_54_Data) {
  const Recipe recipe = Record();
  EXPECT_EQ(recipe.schedules.run.total(), 2285);
  EXPECT_EQ(sched::TrainingTokens(recipe.schedules.batch, recipe.schedules.run), 598'999'040);
  const int64_t slot_tokens = recipe.schedules.batch.stages[0].tokens / recipe.data.slots;
  EXPECT_EQ(slot_tokens, 32'768);
  EXPECT_EQ(recipe.data.max_doc_len, 2048);
  EXPECT_EQ(recipe.data.max_documents, 0);  // by the rule:
  EXPECT_EQ(data::DefaultMaxDocuments(slot_tokens), 128);
  EXPECT_EQ(data::DefaultMaxDocuments(recipe.data.val_slot_tokens), 896);
  EXPECT_EQ(recipe.data.val_tokens / recipe.data.val_slot_tokens, 40);  // T1-18
  EXPECT_EQ(sched::ValidationCount(recipe.schedules.validation, recipe.schedules.run), 11);
}

TEST(FixMuonLR, T1_46_RatesAtTheStart) {
  const Recipe recipe = Record();
  std::map<std::string, double> rates;
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(recipe.model)) {
    for (const optim::ParamRow& row : recipe.optimizer.table) {
      if (row.label != spec.label) continue;
      const optim::ParamRow own = optim::RowOf(row, spec);
      rates[spec.name] = own.lr * own.lr_mul;
      if (row.rule != optim::Rule::kAdam) {
        EXPECT_EQ(row.rule, optim::Rule::kNorMuon) << row.label;
        EXPECT_EQ(row.beta2, 0.95) << row.label;
        EXPECT_DOUBLE_EQ(optim::MuonRates(own, spec, 1).step, rates[spec.name]) << spec.name;
        EXPECT_EQ(optim::MuonRates(own, spec, 1).decay, 1) << spec.name;
      } else {
        EXPECT_EQ(row.beta1, 0.65) << row.label;
        EXPECT_EQ(row.beta2, 0.95) << row.label;
      }
    }
  }
  ASSERT_EQ(rates.size(), model::ParameterSpecs(recipe.model).size());
  for (const auto& [name, rate] : rates) {
    double want = 0.03;
    if (name.ends_with("c_fc")) want = 0.06;
    if (name == "lm_head.weight") want = 0.008;
    if (name == "scalars") want = 0.04;
    if (name.find("embed") != std::string::npos) want = 0.6;
    EXPECT_DOUBLE_EQ(rate, want) << name;
  }
}

TEST(FixMuonLR, T1_47_Updates) {
  const Recipe recipe = Record();
  for (const optim::ParamRow& row : recipe.optimizer.table) {
    int updates = 0;
    for (int64_t step = 0; step < recipe.schedules.run.total(); ++step) {
      updates += optim::IsDue(row, step);
    }
    EXPECT_EQ(updates, row.rule == optim::Rule::kAdam ? 1142 : 2285) << row.label;
    if (row.rule == optim::Rule::kAdam) {
      EXPECT_TRUE(!optim::IsDue(row, 0) && optim::IsDue(row, 1)) << row.label;
    }
  }
}

}  // namespace
}  // namespace tools
