#include "optim/param_table.h"

#include "gtest/gtest.h"
#include "optim/record_a.h"

namespace optim {
namespace {

// At lr_multiplier 1; Adam's bias correction is gone after many updates.
TEST(ParamTable, T1_46_EffectiveRatesOfRecordA) {
  const OptimizerConfig config = RecordAConfig();
  const std::vector<kernels::ParameterSpec> specs = RecordASpecs();
  const auto rows = RowsOfSpecs(config, specs);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamRow& row = config.table[(*rows)[i]];
    const std::string& label = specs[i].label;
    EXPECT_EQ(row.label, label);
    if (row.rule == Rule::kMuon) {
      EXPECT_DOUBLE_EQ(MuonRates(row, specs[i], 1.0).step, 0.05) << specs[i].name;
      EXPECT_EQ(MuonRates(row, specs[i], 1.0).decay, 1.0);
      continue;
    }
    const double want = label == "scalars" ? 0.04 : label == "lm_head" ? 0.008 : 0.6;
    EXPECT_NEAR(AdamRates(row, 1.0, 100000).step, want, 1e-12) << specs[i].name;
    EXPECT_EQ(AdamRates(row, 1.0, 1).decay, 1.0);
  }
}

// The rates and the golden weights of spec 5.3 by the same formula, without the op.
TEST(ParamTable, T1_50_AdamStepSizes) {
  const ParamRow row{.label = "x", .lr = 0.01, .lr_mul = 4, .beta1 = 0.8, .beta2 = 0.95};
  EXPECT_NEAR(AdamRates(row, 1.0, 1).step, 0.04 * std::sqrt(0.05) / 0.2, 1e-15);
  EXPECT_NEAR(AdamRates(row, 0.5, 3).step,
              0.02 * std::sqrt(1 - 0.95 * 0.95 * 0.95) / (1 - 0.8 * 0.8 * 0.8), 1e-15);
}

TEST(ParamTable, DecayAndAspectOfMuon) {
  const ParamRow row{
      .label = "x", .rule = Rule::kMuon, .lr = 0.05, .lr_mul = 2, .weight_decay = 0.1, .wd_mul = 3};
  kernels::ParameterSpec spec{.name = "w", .label = "x", .shape = {64, 16}, .rows = 64, .cols = 16};
  const Rates rates = MuonRates(row, spec, 0.5);
  EXPECT_DOUBLE_EQ(rates.step, 0.05 * 0.5 * 2 * 2);     // sqrt(64 / 16) = 2
  EXPECT_DOUBLE_EQ(rates.decay, 1 - 0.05 * 0.5 * 0.3);  // without lr_mul
  // The stored shape counts, not the view of four squares.
  spec = {.name = "w", .label = "x", .shape = {16, 64}, .matrices = 4, .rows = 16, .cols = 16};
  EXPECT_DOUBLE_EQ(MuonRates(row, spec, 0.5).step, 0.05);
}

TEST(ParamTable, RefusesWhatItCannotServe) {
  OptimizerConfig config;
  config.table = {{.label = "a", .rule = Rule::kMuon}, {.label = "b"}, {.label = "b"}};
  const auto error = [&](kernels::ParameterSpec spec) {
    const auto rows = RowsOfSpecs(config, {spec});
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rows.status().message());
  };
  EXPECT_NE(error({.name = "w", .label = "c", .shape = {1}}).find("no row for label \"c\""),
            std::string::npos);
  EXPECT_NE(error({.name = "w", .label = "b", .shape = {1}}).find("rows 1 and 2"),
            std::string::npos);
  EXPECT_NE(error({.name = "w", .label = "a", .shape = {1}}).find("muon updates matrices"),
            std::string::npos);
  EXPECT_NE(error({.name = "w", .label = "a", .shape = {2, 3}, .rows = 2, .cols = 4}).find("8"),
            std::string::npos);
  EXPECT_NE(error({.name = "w", .label = "a", .shape = {1, 1}, .dtype = kernels::DType::kI32})
                .find("i32"),
            std::string::npos);
}

}  // namespace
}  // namespace optim
