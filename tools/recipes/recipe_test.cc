#include "tools/recipes/recipe.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"

namespace tools {
namespace {

TEST(Recipe, T1_02_T1_28_TheRecordsParametersAndGroups) {
  const auto recipe = FindRecipe("muon_custom_sizing", "full", 50304);
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe->model);
  int64_t total = 0;
  for (const kernels::ParameterSpec& spec : specs) total += spec.size();
  EXPECT_EQ(total, 268'665'636);
  const auto layout = optim::PlanStep(recipe->optimizer, specs);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<size_t> sizes;
  for (const optim::Group& group : layout->groups) sizes.push_back(group.members.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 10, 16, 16}));
}

TEST(Recipe, T1_54_TheRecordsTokens) {
  const auto recipe = FindRecipe("muon_custom_sizing", "full", 50304);
  EXPECT_EQ(recipe->schedules.run.total(), 1680);
  EXPECT_EQ(sched::TrainingTokens(recipe->schedules.batch, recipe->schedules.run), 660'602'880);
  EXPECT_EQ(recipe->schedules.batch.stages[0].tokens / recipe->data.slots, 49'152);
  EXPECT_EQ(recipe->data.val_tokens / recipe->data.val_slot_tokens, 40);  // T1-18
}

TEST(Recipe, T1_46_RatesAtTheStart) {
  const auto recipe = FindRecipe("muon_custom_sizing", "full", 50304);
  const auto rate = [&](const std::string& label) {
    for (const optim::ParamRow& row : recipe->optimizer.table) {
      if (row.label == label) return row.lr * row.lr_mul;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(rate("embed"), 0.6);
  EXPECT_DOUBLE_EQ(rate("value_embed"), 0.6);
  EXPECT_DOUBLE_EQ(rate("lm_head"), 0.008);
  EXPECT_DOUBLE_EQ(rate("scalars"), 0.04);
  for (const char* label : {"smear_gate", "attn_gate", "attn", "mlp"}) {
    EXPECT_DOUBLE_EQ(rate(label), 0.05) << label;
  }
}

class DemoTest : public testing::TestWithParam<std::string> {};

TEST_P(DemoTest, IsTheSameRecipe) {
  const auto full = FindRecipe(GetParam(), "full", 50304);
  const auto demo = FindRecipe(GetParam(), "demo", 384);
  ASSERT_TRUE(demo.ok()) << demo.status();
  ASSERT_EQ(demo->model.layers.size(), full->model.layers.size());
  for (size_t i = 0; i < demo->model.layers.size(); ++i) {
    EXPECT_EQ(demo->model.layers[i].attention, full->model.layers[i].attention);
    EXPECT_EQ(demo->model.layers[i].mlp, full->model.layers[i].mlp);
    EXPECT_EQ(demo->model.layers[i].skip_from, full->model.layers[i].skip_from);
    EXPECT_EQ(demo->model.layers[i].value_embedding, full->model.layers[i].value_embedding);
  }
  EXPECT_EQ(demo->model.fp8_head, full->model.fp8_head);
  EXPECT_EQ(demo->model.backout_layer, full->model.backout_layer);
  EXPECT_EQ(demo->schedules.window.final_in_extension, full->schedules.window.final_in_extension);
  EXPECT_EQ(demo->schedules.momentum.cooldown_steps > 0,
            full->schedules.momentum.cooldown_steps > 0);
  EXPECT_EQ(demo->optimizer.orthogonalizer, full->optimizer.orthogonalizer);
  EXPECT_EQ(demo->schedules.window.long_blocks, full->schedules.window.long_blocks);
  EXPECT_TRUE(sched::Validate(demo->schedules).ok());
  EXPECT_TRUE(model::Validate(demo->model).ok());
}

INSTANTIATE_TEST_SUITE_P(Records, DemoTest, testing::ValuesIn(RecordNames()),
                         [](const auto& info) { return info.param; });

TEST(Recipe, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const absl::Status record = FindRecipe("muon", "full", 128).status();
  const std::string known = absl::StrJoin(RecordNames(), ", ");
  EXPECT_EQ(known.rfind("unified_optimizers, muon_custom_sizing, ", 0), 0u) << known;
  EXPECT_NE(record.message().find("there is " + known), absl::string_view::npos) << record;
  const absl::Status preset = FindRecipe("muon_custom_sizing", "tiny", 128).status();
  EXPECT_NE(preset.message().find("full, demo"), absl::string_view::npos) << preset;
}

TEST(Recipe, PaddedVocab) {
  EXPECT_EQ(PaddedVocab(50257), 50304);
  EXPECT_EQ(PaddedVocab(257), 384);
  EXPECT_EQ(PaddedVocab(384), 384);
}

}  // namespace
}  // namespace tools
