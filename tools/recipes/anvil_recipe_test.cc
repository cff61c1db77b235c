// The mainline's optimizer and schedules, after its pull request 360.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

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

const optim::ParamRow& RowOf(const Recipe& recipe, const std::string& label) {
  const auto& table = recipe.optimizer.table;
  return *std::find_if(table.begin(), table.end(), [&](const auto& r) { return r.label == label; });
}

const char* const kBanks[] = {"qk", "vo", "mlp"};

// The rates of step 600, of which the facts take the multiplier with six decimals; and what is
// frozen: the slot behind the layers.
TEST(Anvil, AN_13_AN_17_Rates) {
  const Recipe recipe = Mainline();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  const double multiplier = sched::PlanStep(recipe.schedules, 600).lr_multiplier;
  const auto rates = [&](const std::string& label, int64_t matrix) {
    return optim::MuonRates(RowOf(recipe, label), SpecOf(specs, label), multiplier, matrix);
  };
  for (const char* bank : kBanks) EXPECT_NEAR(rates(bank, 0).decay, 0.05407766, 3e-8) << bank;
  for (const char* bank : {"qk", "vo"}) {
    for (int64_t matrix = 0; matrix < SpecOf(specs, bank).matrices; ++matrix) {
      EXPECT_NEAR(rates(bank, matrix).step, 0.02403452, 3e-8) << bank << " " << matrix;
    }
  }
  EXPECT_NEAR(rates("mlp", 0).step, 0.04602260, 3e-8);
  EXPECT_NEAR(rates("mlp", 1).step, 0.09204519, 3e-8);
  for (int64_t matrix = 0; matrix < 24; ++matrix) {
    EXPECT_EQ(rates("mlp", matrix).step == 0, matrix >= 22) << matrix;
  }
}

// A weight without gradient: its slow rail stays zero, so its gate is open. Here that is no row of
// a narrow head, as in the mainline, but what padding of qk would do if it were not zero.
TEST(Anvil, AN_15_UnreadRowsShrink) {
  const Recipe recipe = Mainline();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  double left = 1;
  for (int64_t step = 0; step < 1194; ++step) {
    const optim::Rates rates =
        optim::MuonRates(RowOf(recipe, "qk"), SpecOf(specs, "qk"),
                         sched::PlanStep(recipe.schedules, step).lr_multiplier, 0);
    left *= 1 - rates.decay * rates.step;
  }
  EXPECT_NEAR(left, 0.279839, 5.1e-7);
}

TEST(Anvil, AN_04_RailsEngageInProportion) {
  Recipe recipe = Mainline();
  for (const char* bank : kBanks) EXPECT_EQ(RowOf(recipe, bank).rails.engaged_from, 514);
  Rescale(&recipe, 40);
  EXPECT_EQ(recipe.schedules.run.total(), 40);
  for (const char* bank : kBanks) EXPECT_EQ(RowOf(recipe, bank).rails.engaged_from, 17);
  const Recipe demo = FindRecipe("anvil", "demo", 384).value();
  for (const char* bank : kBanks) EXPECT_EQ(RowOf(demo, bank).rails.engaged_from, 17);
}

// The second moments of all matrices; the mainline's rank has the first 6, 2 and 3.
TEST(Anvil, AN_11_Lanes) {
  const Recipe recipe = Mainline();
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  EXPECT_EQ(optim::SecondMomentShape(SpecOf(specs, "qk")), (std::vector<int64_t>{60, 1, 768}));
  EXPECT_EQ(optim::SecondMomentShape(SpecOf(specs, "vo")), (std::vector<int64_t>{20, 768, 1}));
  EXPECT_EQ(optim::SecondMomentShape(SpecOf(specs, "mlp")), (std::vector<int64_t>{24, 2816, 1}));
}

// The live matrices; 42 and 14 of the mainline, whose model has seven layers with attention.
TEST(Anvil, AN_36_Shapes) {
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(Mainline().model);
  std::vector<std::string> labels;
  for (const kernels::ParameterSpec& spec : specs) labels.push_back(spec.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"qk", "vo", "mlp", "scalars", "ve0", "ve1", "ve2",
                                              "smear_gate", "skip_gate", "attn_gate_bank",
                                              "ve_gate_bank", "x0_lambdas", "lm_head", "embed"}));
  const kernels::ParameterSpec &qk = specs[0], &vo = specs[1];
  EXPECT_EQ(qk.name, "qk_bank");
  EXPECT_EQ(qk.shape, (std::vector<int64_t>{60, 256, 768}));
  EXPECT_EQ(qk.matrices, 60);
  EXPECT_EQ(qk.rows, 256);
  EXPECT_EQ(qk.cols, 768);
  EXPECT_EQ(vo.name, "vo_bank");
  EXPECT_EQ(vo.shape, (std::vector<int64_t>{20, 768, 768}));
  EXPECT_EQ(vo.matrices, 20);
  EXPECT_EQ(vo.rows, 768);
  EXPECT_EQ(vo.dtype, kernels::DType::kBF16);
}

// A bound of 1 / 32 at dim 768, O too.
TEST(Anvil, InitialWeights) {
  const model::GptConfig model = Mainline().model;
  EXPECT_EQ(model.initial.qkv * std::sqrt(3.0 / 768), 0.03125);
  EXPECT_EQ(model.initial.o, model.initial.qkv);
}

// Ten layers with attention: 60 and 20 live matrices.
TEST(Anvil, AN_36_Banks) {
  const Recipe recipe = Mainline(), demo = FindRecipe("anvil", "demo", 384).value();
  EXPECT_TRUE(recipe.model.split_attention_banks && demo.model.split_attention_banks);
  EXPECT_FALSE(FindRecipe("unified_optimizers", "full", 50304)->model.split_attention_banks);
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  EXPECT_EQ(SpecOf(specs, "qk").matrices, 60);
  EXPECT_EQ(SpecOf(specs, "vo").matrices, 20);
  EXPECT_EQ(SpecOf(specs, "mlp").matrices, 24);
}

// Events of the value embeddings, from step 336 on in every fourth step; of shorter runs too.
TEST(Anvil, AN_20_AN_21_TheValueEmbeddingsCadence) {
  Recipe recipe = Mainline();
  int tables = 0;
  for (const optim::ParamRow& row : recipe.optimizer.table) {
    const bool value_embedding = row.label == "ve0" || row.label == "ve1" || row.label == "ve2";
    EXPECT_EQ(row.later.changes(), value_embedding) << row.label;
    EXPECT_EQ(row.sparse_rows, value_embedding) << row.label;
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
  const std::vector<std::string>& scatter = recipe.optimizer.scatter_order;
  const std::vector<std::string>& work = recipe.optimizer.work_order;
  EXPECT_EQ(std::vector<std::string>(scatter.begin(), scatter.begin() + 3),
            (std::vector<std::string>{"qk", "vo", "mlp"}));
  EXPECT_EQ(std::vector<std::string>(work.begin(), work.begin() + 3),
            (std::vector<std::string>{"qk", "vo", "lm_head"}));
  EXPECT_EQ(work.back(), "mlp");
  EXPECT_EQ(recipe.optimizer.orthogonalizer, "anvil_cascade");
}

}  // namespace
}  // namespace tools
