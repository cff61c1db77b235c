// Track 2's record of 2025-04-16.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

Recipe Track2() { return FindRecipe("record7", "full", 50304).value(); }

TEST(Track2, T2_01_T2_02_T2_36_ParametersAndOwners) {
  const Recipe recipe = Track2();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  int64_t total = 0, muon = 0;
  for (const kernels::ParameterSpec& spec : specs) {
    total += spec.size();
    if (spec.label == "fc" || spec.label == "proj" || spec.label == "attn") {
      EXPECT_EQ(spec.size(), 4'194'304) << spec.name;
      muon += spec.size();
    }
  }
  EXPECT_EQ(total, 454'496'336);
  EXPECT_EQ(muon, 197'132'288);
  const auto layout = optim::PlanStep(recipe.optimizer, specs);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->groups.size(), 6u);
  std::vector<std::string> rank7;
  for (const optim::Group& group : layout->groups) {
    if (group.members.size() == 8) rank7.push_back(specs[group.members[7]].name);
  }
  EXPECT_EQ(rank7, (std::vector<std::string>{"blocks.7.mlp.fc_w", "blocks.15.mlp.fc_w",
                                             "blocks.7.mlp.proj_w", "blocks.15.mlp.proj_w",
                                             "blocks.8.attn.qkvo_w"}));
}

TEST(Track2, T2_08_T2_33_T2_35_DataAndSchedules) {
  const Recipe recipe = Track2();
  EXPECT_EQ(recipe.data.mode, data::BatchMode::kStream);
  EXPECT_EQ(recipe.schedules.batch.stages[0].tokens / recipe.data.slots, 65'536);
  EXPECT_EQ(sched::TrainingTokens(recipe.schedules.batch, recipe.schedules.run), 3'381'657'600);
  EXPECT_EQ(recipe.data.val_tokens / recipe.data.val_slot_tokens, 40);
  EXPECT_EQ(sched::ValidationCount(recipe.schedules.validation, recipe.schedules.run), 53);
  EXPECT_NEAR(sched::PlanStep(recipe.schedules, 2581).lr_multiplier, 0.99974160, 1e-8);
  EXPECT_NEAR(sched::PlanStep(recipe.schedules, 6449).lr_multiplier, 0.00025839793, 1e-11);
  EXPECT_EQ(sched::PlanStep(recipe.schedules, 6450).windows.long_tokens, 1792);
  EXPECT_EQ(sched::PlanStep(recipe.schedules, 478).windows.long_tokens, 256);
}

TEST(Track2, T2_18_T2_19_T2_20_Layers) {
  const model::GptConfig model = Track2().model;
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(model.layers[i].long_window, i == 0 || i == 4 || i == 11 || i == 15) << i;
    EXPECT_EQ(model.layers[i].attention, i != 7) << i;
    EXPECT_EQ(model.layers[i].value_embedding, i < 3 ? i : i > 12 ? i - 13 : -1) << i;
    EXPECT_EQ(model.layers[i].skip_from, i == 9 ? 6 : i == 10 ? 4 : i == 11 ? 2 : -1) << i;
  }
  EXPECT_EQ(model::SkipScalar(model, 9), 6);
  EXPECT_EQ(model::ScalarCount(model), 80);
}

TEST(Track2, T2_27_Rates) {
  const Recipe recipe = Track2();
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(recipe.model)) {
    const auto row = std::find_if(recipe.optimizer.table.begin(), recipe.optimizer.table.end(),
                                  [&](const auto& r) { return r.label == spec.label; });
    ASSERT_NE(row, recipe.optimizer.table.end()) << spec.label;
    if (row->rule != optim::Rule::kMuon) continue;
    const optim::Rates rates = optim::MuonRates(*row, spec, 1);
    EXPECT_DOUBLE_EQ(rates.step, spec.label == "fc" ? 0.05 : 0.025) << spec.name;
    EXPECT_DOUBLE_EQ(rates.decay, spec.label == "attn" ? 1 - 2.5e-4 : 1 - 5e-4) << spec.name;
  }
}

}  // namespace
}  // namespace tools
