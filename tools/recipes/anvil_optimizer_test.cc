// The optimizer's side of the mainline after ANVIL: rates, lanes, owners, collectives, cadence.
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

using optim::AdamRates;
using optim::BufferLayout;
using optim::GradientWire;
using optim::IsDue;
using optim::KindOfStep;
using optim::MuonRates;
using optim::OptimizerConfig;
using optim::ParamRow;
using optim::PlanCollectives;
using optim::PlannedCollective;
using optim::PlanStep;
using optim::RailRates;
using optim::RailRatesAt;
using optim::Rails;
using optim::Rates;
using optim::RowAt;
using optim::SecondMomentShape;
using optim::StepLayout;
using optim::UpdateNumber;
using optim::UpdatesIn;

constexpr int kRanks = 8;
constexpr int kSteps = 1194;

Recipe Record() { return FindRecipe("anvil", "full", 50304).value(); }

// The recipe's parameters with the mainline's banks: other numbers of matrices of the same kinds.
std::vector<kernels::ParameterSpec> MainlineSpecs() {
  std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(Record().model);
  const auto set = [&specs](const std::string& label, std::vector<int64_t> shape,
                            int64_t matrices) {
    for (kernels::ParameterSpec& spec : specs) {
      if (spec.label != label) continue;
      spec.rows = shape[shape.size() - 2];
      spec.cols = shape.back();
      spec.matrices = matrices;
      spec.shape = std::move(shape);
      return;
    }
    ADD_FAILURE() << label;
  };
  set("qk", {48, 256, 768}, 48);
  set("vo", {16, 768, 768}, 16);
  set("mlp", {12, 2, 2816, 768}, 24);
  return specs;
}

// The recipe's table with the mainline's frozen slot, that of the eighth layer, instead of the one
// behind the layers.
OptimizerConfig MainlineConfig() {
  OptimizerConfig config = Record().optimizer;
  for (ParamRow& row : config.table) {
    if (row.label != "mlp") continue;
    EXPECT_EQ(row.matrix_lr_mul.size(), 24u);
    for (int i : {0, 1}) std::swap(row.matrix_lr_mul[14 + i], row.matrix_lr_mul[22 + i]);
  }
  return config;
}

class AnvilOptimizerTest : public ::testing::Test {
 protected:
  const ParamRow& Row(const std::string& label) const {
    for (const ParamRow& row : config_.table) {
      if (row.label == label) return row;
    }
    return config_.table[0];
  }
  const kernels::ParameterSpec& Spec(const std::string& label) const {
    for (const kernels::ParameterSpec& spec : specs_) {
      if (spec.label == label) return spec;
    }
    return specs_[0];
  }
  Rates RatesOf(const std::string& label, double lr_multiplier, int64_t matrix) const {
    return MuonRates(Row(label), Spec(label), lr_multiplier, matrix);
  }

  const std::vector<kernels::ParameterSpec> specs_ = MainlineSpecs();
  const OptimizerConfig config_ = MainlineConfig();
};

TEST_F(AnvilOptimizerTest, AN_11_LanesLieAlongTheLongerSide) {
  EXPECT_EQ(SecondMomentShape(Spec("qk")), (std::vector<int64_t>{48, 1, 768}));
  EXPECT_EQ(SecondMomentShape(Spec("vo")), (std::vector<int64_t>{16, 768, 1}));
  EXPECT_EQ(SecondMomentShape(Spec("mlp")), (std::vector<int64_t>{24, 2816, 1}));
}

TEST_F(AnvilOptimizerTest, AN_04_RailsEngageAtStep514) {
  const Rails& rails = Row("qk").rails;
  for (int64_t step : {0, 240, 513}) {
    const RailRates rates = RailRatesAt(rails, 0.93, step);
    EXPECT_EQ(rates.lookahead, 0.93);
    EXPECT_EQ(rates.fast_beta, 0.93);
    EXPECT_EQ(rates.fast_weight, 1);
  }
  for (int64_t step : {514, 600, 1193}) {
    const RailRates rates = RailRatesAt(rails, 0.93, step);
    EXPECT_EQ(rates.lookahead, 0.93);
    EXPECT_EQ(rates.fast_beta, 0.85);
    EXPECT_EQ(rates.fast_weight, 0.4385);
  }
  EXPECT_NEAR(1 - rails.slow_beta, 0.02, 1e-15);
}

TEST_F(AnvilOptimizerTest, AN_13_Multipliers) {
  EXPECT_NEAR(RatesOf("mlp", 1 / 0.023, 0).step, 1.9148542155, 1e-10);
  EXPECT_NEAR(RatesOf("mlp", 1, 0).step, 0.0440416470, 1e-10);
  EXPECT_NEAR(RatesOf("mlp", 1, 1).step, 0.0880832939, 1e-10);
  EXPECT_DOUBLE_EQ(RatesOf("qk", 1, 5).step, 0.023);
  EXPECT_DOUBLE_EQ(RatesOf("vo", 1, 5).step, 0.023);
  for (int64_t matrix = 0; matrix < 24; ++matrix) {
    EXPECT_EQ(RatesOf("mlp", 1, matrix).step == 0, matrix == 14 || matrix == 15) << matrix;
  }
  // Per step with an open gate.
  const auto decay = [&](const std::string& label, int64_t matrix) {
    const Rates rates = RatesOf(label, 1, matrix);
    return rates.step * rates.decay;
  };
  EXPECT_NEAR(decay("qk", 0), 1.19025e-3, 1e-9);
  EXPECT_NEAR(decay("mlp", 0), 2.279155e-3, 1e-9);
  EXPECT_NEAR(decay("mlp", 1), 4.558310e-3, 1e-9);
}

TEST_F(AnvilOptimizerTest, AN_14_MultipliersPerRank) {
  const auto layout = PlanStep(config_, specs_);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const BufferLayout& mlp = layout->muon[2];
  ASSERT_EQ(mlp.Chunk(kRanks) / mlp.unit, 3);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<double> factors;
    for (int64_t i = 0; i < 3; ++i) {
      factors.push_back(std::round(RatesOf("mlp", 1, 3 * rank + i).step / 0.0440416470 * 1e6) /
                        1e6);
    }
    std::vector<double> want =
        rank % 2 == 0 ? std::vector<double>{1, 2, 1} : std::vector<double>{2, 1, 2};
    if (rank == 4) want = {1, 2, 0};
    if (rank == 5) want = {0, 1, 2};
    EXPECT_EQ(factors, want) << rank;
  }
}

TEST_F(AnvilOptimizerTest, AN_17_Step600) {
  const double multiplier = 1.044979;  // of the schedule, to six decimals
  EXPECT_NEAR(RatesOf("qk", multiplier, 0).decay, 0.05407766, 3e-8);
  EXPECT_NEAR(RatesOf("qk", multiplier, 0).step, 0.02403452, 2e-8);
  EXPECT_NEAR(RatesOf("mlp", multiplier, 0).step, 0.04602260, 3e-8);
  EXPECT_NEAR(RatesOf("mlp", multiplier, 1).step, 0.09204519, 5e-8);
}

TEST_F(AnvilOptimizerTest, AN_36_ChunksDivideOn8Ranks) {
  const auto layout = PlanStep(config_, specs_);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const int64_t want[] = {6, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const BufferLayout& bank = layout->muon[i];
    EXPECT_EQ(bank.Chunk(kRanks) / bank.unit, want[i]) << bank.label;
    EXPECT_EQ(bank.Padded(kRanks), bank.size()) << bank.label;
  }
}

std::vector<std::string> Names(const std::vector<PlannedCollective>& collectives) {
  std::vector<std::string> names;
  for (const PlannedCollective& c : collectives) names.push_back(c.op + " " + c.label);
  return names;
}

TEST_F(AnvilOptimizerTest, AN_25_EvenSteps) {
  const auto layout = PlanStep(config_, specs_);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto even =
      PlanCollectives(*layout, KindOfStep(*layout, 0, true), kRanks, GradientWire::kWeightDType);
  EXPECT_EQ(Names(even), (std::vector<std::string>{"reduce_scatter qk", "reduce_scatter vo",
                                                   "reduce_scatter mlp", "all_gather qk",
                                                   "all_gather vo", "all_gather mlp"}));
  EXPECT_EQ(even[0].bytes, 18'874'368);
  EXPECT_EQ(even[1].bytes, 18'874'368);
  EXPECT_EQ(even[2].bytes, 103'809'024);
  // The MLPs' gather, of which the next step needs nothing before its first MLP, goes last.
  const auto odd =
      PlanCollectives(*layout, KindOfStep(*layout, 1, true), kRanks, GradientWire::kWeightDType);
  EXPECT_EQ(Names(odd).back(), "all_gather mlp");
}

// The mainline's, with the parameters of what this repository's models lack.
TEST_F(AnvilOptimizerTest, AN_18_ThirteenParametersInTwoBuffers) {
  const kernels::DType bf16 = kernels::DType::kBF16, f32 = kernels::DType::kF32;
  const std::vector<kernels::ParameterSpec> specs = {
      {"ve_gate_bank", "ve_gate_bank", {3, 6, 12}, bf16, 3, 6, 12},
      {"scalars", "scalars", {24}, f32, 1, 1, 24},
      {"smear_gate", "smear_gate", {1, 12}, bf16, 1, 1, 12},
      {"post_lambdas", "post_lambdas", {11, 2}, f32, 1, 11, 2},
      {"resid_lambdas", "resid_lambdas", {11, 2}, f32, 1, 11, 2},
      {"mudd_w1", "mudd_w1", {2, 64, 768}, bf16, 2, 64, 768},
      {"mudd_gate_w1", "mudd_gate_w1", {2, 64, 768}, bf16, 2, 64, 768},
      {"mudd_w2", "mudd_w2", {2, 14, 64}, bf16, 2, 14, 64},
      {"mudd_w2g", "mudd_w2g", {14, 12, 64}, bf16, 14, 12, 64},
      {"mudd_b2", "mudd_b2", {2, 14}, bf16, 1, 2, 14},
      {"mudd_gate_w2", "mudd_gate_w2", {2, 23, 64}, bf16, 2, 23, 64},
      {"mudd_gate_b2", "mudd_gate_b2", {2, 23}, bf16, 1, 2, 23},
      {"_mudd_gate_scale", "_mudd_gate_scale", {1}, f32, 1, 1, 1}};
  OptimizerConfig config;
  config.flat_replicated = true;
  for (const kernels::ParameterSpec& spec : specs) {
    config.table.push_back(Row("scalars"));
    config.table.back().label = spec.label;
    config.scatter_order.push_back(spec.label);
  }
  config.work_order = config.scatter_order;
  const StepLayout layout = *PlanStep(config, specs);
  ASSERT_EQ(layout.adam.size(), 2u);
  EXPECT_EQ(layout.adam[0].label, "flat bf16");
  EXPECT_EQ(layout.adam[0].size(), 212'398);
  EXPECT_EQ(layout.adam[0].members.size(), 9u);
  EXPECT_EQ(layout.adam[1].label, "flat f32");
  EXPECT_EQ(layout.adam[1].size(), 69);
  EXPECT_EQ(layout.adam[1].members.size(), 4u);
  const std::vector<PlannedCollective> odd =
      PlanCollectives(layout, KindOfStep(layout, 1, false), kRanks, GradientWire::kWeightDType);
  ASSERT_EQ(odd.size(), 2u);
  EXPECT_EQ(odd[0].op, "all_reduce");
  EXPECT_EQ(odd[0].bytes, 424'796);
  EXPECT_EQ(odd[1].bytes, 276);
  EXPECT_TRUE(
      PlanCollectives(layout, KindOfStep(layout, 0, false), kRanks, GradientWire::kF32).empty());
}

const std::vector<std::string> kTiedOdd = {
    "all_reduce flat bf16", "all_reduce flat f32", "reduce_scatter qk",
    "reduce_scatter vo",    "reduce_scatter mlp",  "reduce_scatter lm_head.weight",
    "all_gather qk",        "all_gather vo",       "all_gather lm_head.weight",
    "all_gather mlp"};
const std::vector<std::string> kUntiedOdd = {
    "all_reduce flat bf16",        "all_reduce flat f32",     "reduce_scatter qk",
    "reduce_scatter vo",           "reduce_scatter mlp",      "reduce_scatter lm_head.weight",
    "reduce_scatter embed.weight", "all_gather qk",           "all_gather vo",
    "all_gather lm_head.weight",   "all_gather embed.weight", "all_gather mlp"};
const std::vector<std::string> kEven = {"reduce_scatter qk",  "reduce_scatter vo",
                                        "reduce_scatter mlp", "all_gather qk",
                                        "all_gather vo",      "all_gather mlp"};

TEST_F(AnvilOptimizerTest, AN_26_CollectivesOfTheRecord) {
  const StepLayout layout = *PlanStep(config_, specs_);
  const auto names = [&](int64_t step, bool tied) {
    return Names(
        PlanCollectives(layout, KindOfStep(layout, step, tied), kRanks, GradientWire::kF32));
  };
  EXPECT_EQ(names(337, true), kTiedOdd);
  EXPECT_EQ(names(1177, false), kUntiedOdd);
  EXPECT_EQ(names(336, true), kEven);
  EXPECT_EQ(names(1176, false), kEven);
}

TEST_F(AnvilOptimizerTest, AN_20_Events) {
  const ParamRow& row = Row("ve1");
  std::vector<int64_t> events, want;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (IsDue(row, step)) events.push_back(step);
  }
  for (int64_t step = 1; step <= 335; step += 2) want.push_back(step);
  for (int64_t step = 339; step <= 1191; step += 4) want.push_back(step);
  EXPECT_EQ(events, want);
  EXPECT_EQ(events.size(), 382u);
  EXPECT_EQ(UpdatesIn(row, kSteps), 382);
  EXPECT_EQ(UpdatesIn(row, 336), 168);
}

TEST_F(AnvilOptimizerTest, AN_21_BetasDecayAndBiasCorrection) {
  const ParamRow& row = Row("ve1");
  for (const int64_t step : {0, 1, 335}) {
    const ParamRow now = RowAt(row, step);
    EXPECT_EQ(now.beta1, 0.75);
    EXPECT_EQ(now.beta2, 0.95);
    EXPECT_EQ(now.wd_mul, 5);
  }
  for (const int64_t step : {336, 339, 1191}) {
    const ParamRow now = RowAt(row, step);
    EXPECT_EQ(now.beta1, 0.5625);
    EXPECT_NEAR(now.beta2, 0.9025, 1e-15);
    EXPECT_EQ(now.wd_mul, 10);
  }
  // The correction counts events, and begins with those of a run that begins later.
  int64_t events = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (!IsDue(row, step)) continue;
    EXPECT_EQ(UpdateNumber(row, step, 0), ++events) << step;
  }
  EXPECT_EQ(UpdateNumber(row, 339, 336), 1);
  EXPECT_EQ(UpdateNumber(row, 343, 334), 3);
  EXPECT_NEAR(AdamRates(RowAt(row, 339), 1, 2).step,
              0.56 * std::sqrt(1 - std::pow(0.9025, 2)) / (1 - std::pow(0.5625, 2)), 1e-12);
}

}  // namespace
}  // namespace tools
