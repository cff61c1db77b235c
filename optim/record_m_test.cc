// The optimizer's side of the mainline after ANVIL: rates, lanes, owners, collectives.
#include "optim/record_m.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "optim/step_layout.h"

namespace optim {
namespace {

constexpr int kRanks = 8;

class RecordMTest : public ::testing::Test {
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

  const std::vector<kernels::ParameterSpec> specs_ = RecordMSpecs();
  const OptimizerConfig config_ = RecordMConfig();
};

TEST_F(RecordMTest, AN_11_LanesLieAlongTheLongerSide) {
  EXPECT_EQ(SecondMomentShape(Spec("qk_bank")), (std::vector<int64_t>{48, 1, 768}));
  EXPECT_EQ(SecondMomentShape(Spec("vo_bank")), (std::vector<int64_t>{16, 768, 1}));
  EXPECT_EQ(SecondMomentShape(Spec("mlp_bank")), (std::vector<int64_t>{24, 2816, 1}));
}

TEST_F(RecordMTest, AN_04_RailsEngageAtStep514) {
  const Rails& rails = Row("qk_bank").rails;
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

TEST_F(RecordMTest, AN_13_Multipliers) {
  EXPECT_NEAR(RatesOf("mlp_bank", 1 / 0.023, 0).step, 1.9148542155, 1e-10);
  EXPECT_NEAR(RatesOf("mlp_bank", 1, 0).step, 0.0440416470, 1e-10);
  EXPECT_NEAR(RatesOf("mlp_bank", 1, 1).step, 0.0880832939, 1e-10);
  EXPECT_DOUBLE_EQ(RatesOf("qk_bank", 1, 5).step, 0.023);
  EXPECT_DOUBLE_EQ(RatesOf("vo_bank", 1, 5).step, 0.023);
  for (int64_t matrix = 0; matrix < 24; ++matrix) {
    EXPECT_EQ(RatesOf("mlp_bank", 1, matrix).step == 0, matrix == 14 || matrix == 15) << matrix;
  }
  // Per step with an open gate.
  const auto decay = [&](const std::string& label, int64_t matrix) {
    const Rates rates = RatesOf(label, 1, matrix);
    return rates.step * rates.decay;
  };
  EXPECT_NEAR(decay("qk_bank", 0), 1.19025e-3, 1e-9);
  EXPECT_NEAR(decay("mlp_bank", 0), 2.279155e-3, 1e-9);
  EXPECT_NEAR(decay("mlp_bank", 1), 4.558310e-3, 1e-9);
}

TEST_F(RecordMTest, AN_14_MultipliersPerRank) {
  const auto layout = PlanStep(config_, specs_);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const BufferLayout& mlp = layout->muon[2];
  ASSERT_EQ(mlp.Chunk(kRanks) / mlp.unit, 3);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<double> factors;
    for (int64_t i = 0; i < 3; ++i) {
      factors.push_back(std::round(RatesOf("mlp_bank", 1, 3 * rank + i).step / 0.0440416470 * 1e6) /
                        1e6);
    }
    std::vector<double> want =
        rank % 2 == 0 ? std::vector<double>{1, 2, 1} : std::vector<double>{2, 1, 2};
    if (rank == 4) want = {1, 2, 0};
    if (rank == 5) want = {0, 1, 2};
    EXPECT_EQ(factors, want) << rank;
  }
}

TEST_F(RecordMTest, AN_17_Step600) {
  const double multiplier = 1.044979;  // of the schedule, to six decimals
  EXPECT_NEAR(RatesOf("qk_bank", multiplier, 0).decay, 0.05407766, 3e-8);
  EXPECT_NEAR(RatesOf("qk_bank", multiplier, 0).step, 0.02403452, 2e-8);
  EXPECT_NEAR(RatesOf("mlp_bank", multiplier, 0).step, 0.04602260, 3e-8);
  EXPECT_NEAR(RatesOf("mlp_bank", multiplier, 1).step, 0.09204519, 5e-8);
}

TEST_F(RecordMTest, AN_36_ChunksDivideOn8Ranks) {
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

TEST_F(RecordMTest, AN_25_EvenSteps) {
  const auto layout = PlanStep(config_, specs_);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto even =
      PlanCollectives(*layout, KindOfStep(*layout, 0, true), kRanks, GradientWire::kWeightDType);
  EXPECT_EQ(Names(even),
            (std::vector<std::string>{"reduce_scatter qk_bank", "reduce_scatter vo_bank",
                                      "reduce_scatter mlp_bank", "all_gather qk_bank",
                                      "all_gather vo_bank", "all_gather mlp_bank"}));
  EXPECT_EQ(even[0].bytes, 18'874'368);
  EXPECT_EQ(even[1].bytes, 18'874'368);
  EXPECT_EQ(even[2].bytes, 103'809'024);
  // The MLPs' gather, of which the next step needs nothing before its first MLP, goes last.
  const auto odd =
      PlanCollectives(*layout, KindOfStep(*layout, 1, true), kRanks, GradientWire::kWeightDType);
  EXPECT_EQ(Names(odd).back(), "all_gather mlp_bank");
}

}  // namespace
}  // namespace optim
