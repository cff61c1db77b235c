#include "tools/recipes/recipe.h"

#include <map>
#include <string>
#include <vector>

#include "data/batcher.h"
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

class DemoTest : public testing::TestWithParam<const char*> {};

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
  EXPECT_TRUE(demo->model.fp8_head);
  EXPECT_EQ(demo->model.backout_layer, full->model.backout_layer);
  EXPECT_EQ(demo->schedules.window.final_in_extension, full->schedules.window.final_in_extension);
  EXPECT_EQ(demo->schedules.momentum.cooldown_steps > 0,
            full->schedules.momentum.cooldown_steps > 0);
  EXPECT_EQ(demo->optimizer.orthogonalizer, full->optimizer.orthogonalizer);
  EXPECT_EQ(demo->schedules.window.long_blocks, full->schedules.window.long_blocks);
  EXPECT_TRUE(sched::Validate(demo->schedules).ok());
  EXPECT_TRUE(model::Validate(demo->model).ok());
}

INSTANTIATE_TEST_SUITE_P(Records, DemoTest,
                         testing::Values("unified_optimizers", "muon_custom_sizing",
                                         "fix_muon_lr"));

Recipe RecordB() { return FindRecipe("fix_muon_lr", "full", 50304).value(); }

// With the scalars padded for 8 ranks, as the fact counts them.
TEST(RecordB, T1_02_T1_28_ParametersAndGroups) {
  const Recipe recipe = RecordB();
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

TEST(RecordB, T1_14_T1_16_T1_54_Data) {
  const Recipe recipe = RecordB();
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

TEST(RecordB, T1_46_RatesAtTheStart) {
  const Recipe recipe = RecordB();
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

TEST(RecordB, T1_47_Updates) {
  const Recipe recipe = RecordB();
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

TEST(Recipe, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const absl::Status record = FindRecipe("muon", "full", 128).status();
  EXPECT_NE(record.message().find("there is unified_optimizers, muon_custom_sizing, fix_muon_lr"),
            absl::string_view::npos)
      << record;
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
