#include "tools/recipes/recipe.h"

#include <algorithm>
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

INSTANTIATE_TEST_SUITE_P(Records, DemoTest,
                         testing::Values("unified_optimizers", "muon_custom_sizing", "fix_muon_lr",
                                         "normuon", "anvil", "record7"));

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

Recipe RecordC() { return FindRecipe("unified_optimizers", "full", 50304).value(); }

TEST(RecordC, UO_01_UO_43_SizesAndData) {
  const Recipe recipe = RecordC();
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

TEST(RecordC, UO_16_UO_24_UO_26_UO_28_Changes) {
  const Recipe recipe = RecordC();
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

TEST(RecordC, UO_22_UO_18_Head) {
  const Recipe recipe = RecordC();
  const kernels::HeadPrecision precision = model::TrainingHeadPrecision(recipe.model);
  EXPECT_TRUE(precision.fp8);
  EXPECT_FLOAT_EQ(precision.x_scale, 0.2232142857f);
  EXPECT_FLOAT_EQ(precision.w_scale, 0.0035714286f);
  EXPECT_FLOAT_EQ(precision.grad_scale, 0.0016741071f);
  EXPECT_EQ(recipe.model.softcap, 23);
  EXPECT_EQ(recipe.model.softcap_shift, 5);
  EXPECT_EQ(recipe.model.softcap_temperature, 7.5f);
}

TEST(RecordC, UO_39_Orders) {
  const optim::OptimizerConfig config = RecordC().optimizer;
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

TEST(RecordC, UO_27_UO_29_RatesAndRules) {
  const Recipe recipe = RecordC();
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

Recipe Mainline() { return FindRecipe("anvil", "full", 50304).value(); }

TEST(Anvil, AN_01_AN_27_AN_39_StepsStagesAndTokens) {
  const sched::Schedules schedules = Mainline().schedules;
  ASSERT_TRUE(sched::Validate(schedules).ok()) << sched::Validate(schedules);
  EXPECT_EQ(schedules.run.total(), 1194);
  std::vector<int64_t> batches;
  for (const sched::BatchStart& start : sched::BatchStarts(schedules.batch, schedules.run)) {
    batches.push_back(start.first_step);
  }
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 320, 681, 1107, 1174}));
  EXPECT_EQ(sched::WindowChanges(schedules.window, schedules.run),
            (std::vector<int64_t>{320, 681, 1174, 1194}));
  EXPECT_EQ(sched::LastTiedStep(schedules.tying, schedules.run), 1175);
  EXPECT_EQ(sched::TrainingTokens(schedules.batch, schedules.run), 328'663'040);
  EXPECT_NEAR(sched::PlanStep(schedules, 320).lr_multiplier, 1.408383, 5.1e-7);
  EXPECT_NEAR(sched::PlanStep(schedules, 1193).momentum, 0.8516, 1e-12);
}

const kernels::ParameterSpec& SpecOf(const std::vector<kernels::ParameterSpec>& specs,
                                     const std::string& label) {
  return *std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.label == label; });
}

// The rates of step 600, of which the facts take the multiplier with six decimals; and what is
// frozen: the slot behind the layers.
TEST(Anvil, AN_13_AN_17_Rates) {
  const Recipe recipe = Mainline();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  const double multiplier = sched::PlanStep(recipe.schedules, 600).lr_multiplier;
  const optim::ParamRow &attn = recipe.optimizer.table[0], &mlp = recipe.optimizer.table[1];
  ASSERT_EQ(attn.label, "attn");
  ASSERT_EQ(mlp.label, "mlp");
  const auto rates = [&](const optim::ParamRow& row, int64_t matrix) {
    return optim::MuonRates(row, SpecOf(specs, row.label), multiplier, matrix);
  };
  EXPECT_NEAR(rates(attn, 0).decay, 0.05407766, 3e-8);
  EXPECT_NEAR(rates(attn, 0).step, 0.02403452, 3e-8);
  EXPECT_NEAR(rates(mlp, 0).step, 0.04602260, 3e-8);
  EXPECT_NEAR(rates(mlp, 1).step, 0.09204519, 3e-8);
  for (int64_t matrix = 0; matrix < 24; ++matrix) {
    EXPECT_EQ(rates(mlp, matrix).step == 0, matrix >= 22) << matrix;
  }
}

// A weight without gradient: its slow rail stays zero, so its gate is open.
TEST(Anvil, AN_15_UnreadRowsShrink) {
  const Recipe recipe = Mainline();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  const optim::ParamRow& attn = recipe.optimizer.table[0];
  double left = 1;
  for (int64_t step = 0; step < 1194; ++step) {
    const optim::Rates rates = optim::MuonRates(
        attn, SpecOf(specs, "attn"), sched::PlanStep(recipe.schedules, step).lr_multiplier, 0);
    left *= 1 - rates.decay * rates.step;
  }
  EXPECT_NEAR(left, 0.279839, 5.1e-7);
}

TEST(Anvil, AN_04_RailsEngageInProportion) {
  Recipe recipe = Mainline();
  for (int row : {0, 1}) EXPECT_EQ(recipe.optimizer.table[row].rails.engaged_from, 514);
  Rescale(&recipe, 40);
  EXPECT_EQ(recipe.schedules.run.total(), 40);
  for (int row : {0, 1}) EXPECT_EQ(recipe.optimizer.table[row].rails.engaged_from, 17);
  const Recipe demo = FindRecipe("anvil", "demo", 384).value();
  EXPECT_EQ(demo.optimizer.table[0].rails.engaged_from, 17);
}

// Events of the value embeddings, from step 336 on in every fourth step; of shorter runs too.
TEST(Anvil, AN_20_AN_21_TheValueEmbeddingsCadence) {
  Recipe recipe = Mainline();
  int tables = 0;
  for (const optim::ParamRow& row : recipe.optimizer.table) {
    const bool value_embedding = row.label == "ve0" || row.label == "ve1" || row.label == "ve2";
    EXPECT_EQ(row.later.changes(), value_embedding) << row.label;
    if (!value_embedding) continue;
    ++tables;
    EXPECT_EQ(optim::UpdatesIn(row, 1194), 382);
    EXPECT_TRUE(optim::IsDue(row, 335) && optim::IsDue(row, 339) && optim::IsDue(row, 1191));
    EXPECT_FALSE(optim::IsDue(row, 337) || optim::IsDue(row, 1193));
    const optim::ParamRow first = optim::RowAt(row, 335), later = optim::RowAt(row, 336);
    EXPECT_DOUBLE_EQ(first.beta1, 0.75);
    EXPECT_DOUBLE_EQ(first.beta2, 0.95);
    EXPECT_DOUBLE_EQ(first.wd_mul, 5);
    EXPECT_DOUBLE_EQ(later.beta1, 0.5625);
    EXPECT_DOUBLE_EQ(later.beta2, 0.9025);
    EXPECT_DOUBLE_EQ(later.wd_mul, 10);
    EXPECT_DOUBLE_EQ(later.lr_mul, 70);
  }
  EXPECT_EQ(tables, 3);
  Rescale(&recipe, 40);
  for (const optim::ParamRow& row : recipe.optimizer.table) {
    EXPECT_EQ(row.later.from_step, row.later.changes() ? 11 : 0) << row.label;
  }
}

TEST(Anvil, EveryLabelIsInBothOrders) {
  const Recipe recipe = Mainline();
  const auto layout = optim::PlanStep(recipe.optimizer, model::ParameterSpecs(recipe.model));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(recipe.optimizer.work_order.back(), "mlp");
  EXPECT_EQ(recipe.optimizer.orthogonalizer, "anvil_cascade");
}

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

TEST(Recipe, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const absl::Status record = FindRecipe("muon", "full", 128).status();
  EXPECT_NE(
      record.message().find(
          "there is unified_optimizers, muon_custom_sizing, fix_muon_lr, normuon, anvil, record7"),
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
