// The record of 2026-01-18.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/param_table.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

Recipe Record() { return FindRecipe("unified_optimizers", "full", 50304).value(); }

TEST(UnifiedOptimizers, UO_01_UO_43_SizesAndData) {
  const Recipe recipe = Record();
  int64_t total = 0;
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(recipe.model)) {
    total += spec.size();
  }
  EXPECT_EQ(total, 273'384'575);
  EXPECT_EQ(recipe.schedules.run.total(), 1765);
  EXPECT_EQ(sched::TrainingTokens(recipe.schedules.batch, recipe.schedules.run), 467'927'040);
  EXPECT_EQ(recipe.data.slots, 8);
  EXPECT_EQ(recipe.data.max_doc_len, 2048);
  EXPECT_EQ(recipe.data.val_tokens, 5 * 2'097'152);
  EXPECT_EQ(recipe.data.val_slot_tokens * recipe.data.slots, 2'097'152);
  EXPECT_EQ(sched::ValidationCount(recipe.schedules.validation, recipe.schedules.run), 9);
  EXPECT_EQ(recipe.model.loss_weights, sched::MaxWeights(recipe.schedules.multi_token));
}

TEST(UnifiedOptimizers, UO_16_UO_24_UO_26_UO_28_Changes) {
  const Recipe recipe = Record();
  const sched::Schedules& schedules = recipe.schedules;
  std::vector<int64_t> batches;
  for (const sched::BatchStart& start : sched::BatchStarts(schedules.batch, schedules.run)) {
    batches.push_back(start.first_step);
  }
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 575, 1150}));
  EXPECT_EQ(sched::WindowChanges(schedules.window, schedules.run),
            (std::vector<int64_t>{575, 1150, 1725, 1765}));
  EXPECT_EQ(sched::LastTiedStep(schedules.tying, schedules.run), 1151);
  EXPECT_EQ(sched::PlanStep(schedules, 575).lr_multiplier, 1);
  EXPECT_EQ(sched::PlanStep(schedules, 576).lr_multiplier, 1.52);
  EXPECT_NEAR(sched::PlanStep(schedules, 1151).lr_multiplier, 1.184777, 1e-6);
  EXPECT_EQ(sched::PlanStep(schedules, 1725).lr_multiplier, 0.1);
  EXPECT_NEAR(sched::PlanStep(schedules, 1764).momentum, 0.852, 1e-12);
  EXPECT_EQ(sched::PlanStep(schedules, 0).loss_weights, (std::vector<float>{1, 0.5f, 0.25f}));
  EXPECT_EQ(sched::PlanStep(schedules, 1150).loss_weights, (std::vector<float>{1, 0, 0}));
}

TEST(UnifiedOptimizers, UO_22_UO_18_Head) {
  const Recipe recipe = Record();
  const kernels::HeadPrecision precision = model::TrainingHeadPrecision(recipe.model);
  EXPECT_TRUE(precision.fp8);
  EXPECT_FLOAT_EQ(precision.x_scale, 0.2232142857f);
  EXPECT_FLOAT_EQ(precision.w_scale, 0.0035714286f);
  EXPECT_FLOAT_EQ(precision.grad_scale, 0.0016741071f);
  EXPECT_EQ(recipe.model.softcap, 23);
  EXPECT_EQ(recipe.model.softcap_shift, 5);
  EXPECT_EQ(recipe.model.softcap_temperature, 7.5f);
}

TEST(UnifiedOptimizers, UO_39_Orders) {
  const optim::OptimizerConfig config = Record().optimizer;
  EXPECT_EQ(config.scatter_order,
            (std::vector<std::string>{"attn", "mlp", "scalars", "ve0", "ve1", "ve2", "smear_gate",
                                      "skip_gate", "attn_gate_bank", "ve_gate_bank", "x0_lambdas",
                                      "lm_head", "embed"}));
  EXPECT_EQ(config.work_order,
            (std::vector<std::string>{"scalars", "smear_gate", "skip_gate", "attn_gate_bank",
                                      "ve_gate_bank", "x0_lambdas", "ve0", "ve1", "ve2", "lm_head",
                                      "embed", "attn", "mlp"}));
  EXPECT_EQ(config.orthogonalizer, "polar_express");
}

TEST(UnifiedOptimizers, UO_27_UO_29_RatesAndRules) {
  const Recipe recipe = Record();
  struct Want {
    double lr, decay, beta1, beta2;
    bool replicated;
  };
  const std::map<std::string, Want> adam = {{"scalars", {0.04, 0, 0.9, 0.99, true}},
                                            {"ve0", {0.6, 9e-3, 0.75, 0.95, false}},
                                            {"ve1", {0.6, 9e-3, 0.75, 0.95, false}},
                                            {"ve2", {0.6, 9e-3, 0.75, 0.95, false}},
                                            {"smear_gate", {8e-5, 0, 0.9, 0.99, true}},
                                            {"skip_gate", {4e-4, 0, 0.9, 0.99, true}},
                                            {"attn_gate_bank", {0.008, 3.2e-7, 0.9, 0.99, true}},
                                            {"ve_gate_bank", {0.008, 3.2e-7, 0.9, 0.99, true}},
                                            {"x0_lambdas", {0.04, 0, 0.65, 0.95, true}},
                                            {"lm_head", {0.008, 4.8e-5, 0.5, 0.95, false}},
                                            {"embed", {0.008, 4.8e-5, 0.5, 0.95, false}}};
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(recipe.model)) {
    const auto row = std::find_if(recipe.optimizer.table.begin(), recipe.optimizer.table.end(),
                                  [&](const auto& r) { return r.label == spec.label; });
    ASSERT_NE(row, recipe.optimizer.table.end()) << spec.label;
    if (adam.count(spec.label) == 0) {
      EXPECT_EQ(row->rule, optim::Rule::kNorMuon);
      const double c_fc = spec.label == "attn" ? 0.023 : 0.046;
      EXPECT_DOUBLE_EQ(optim::MuonRates(*row, spec, 1, 0).step, c_fc) << spec.label;
      EXPECT_DOUBLE_EQ(optim::MuonRates(*row, spec, 1, 1).step,
                       spec.label == "attn" ? 0.023 : 0.092);
      EXPECT_DOUBLE_EQ(optim::MuonRates(*row, spec, 1, 1).decay, 0.0276);
      EXPECT_TRUE(row->mantissa && row->cautious_decay && row->every == 1 && row->beta2 == 0.95);
      continue;
    }
    const Want& want = adam.at(spec.label);
    EXPECT_EQ(row->rule, optim::Rule::kAdam) << spec.label;
    EXPECT_DOUBLE_EQ(row->lr * row->lr_mul, want.lr) << spec.label;
    EXPECT_DOUBLE_EQ(optim::AdamRates(*row, 1, 1).decay, want.decay) << spec.label;
    EXPECT_EQ(row->beta1, want.beta1) << spec.label;
    EXPECT_EQ(row->beta2, want.beta2) << spec.label;
    EXPECT_EQ(row->eps, 1e-10) << spec.label;
    EXPECT_EQ(row->every, recipe.schedules.tying.update_every) << spec.label;
    EXPECT_EQ(row->comms == optim::Comms::kReplicated, want.replicated) << spec.label;
    EXPECT_EQ(row->tied_to, spec.label == "embed" ? "lm_head" : "") << spec.label;
  }
}

}  // namespace
}  // namespace tools
