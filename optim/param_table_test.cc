#include "optim/param_table.h"

#include <cmath>

#include "gtest/gtest.h"

namespace optim {
namespace {

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

// At full rate, of the track-2 record of 2025-04-16.
TEST(ParamTable, T2_27_EffectiveRates) {
  const auto expect = [](std::vector<int64_t> shape, double wd_mul, double step, double decay) {
    const ParamRow row{.label = "x",
                       .rule = Rule::kMuon,
                       .lr = 0.025,
                       .weight_decay = 0.01,
                       .wd_mul = wd_mul,
                       .mantissa = true};
    const int64_t rows = shape[shape.size() - 2], cols = shape.back();
    const int64_t matrices = shape.size() == 3 ? shape[0] : 1;
    const kernels::ParameterSpec spec{.name = "w",
                                      .label = "x",
                                      .shape = shape,
                                      .matrices = matrices,
                                      .rows = rows,
                                      .cols = cols};
    EXPECT_DOUBLE_EQ(MuonRates(row, spec, 1).step, step);
    EXPECT_EQ(static_cast<float>(MuonRates(row, spec, 1).decay), static_cast<float>(decay));
  };
  expect({4096, 1024}, 2, 0.05, 0.9994999766);
  expect({1024, 4096}, 2, 0.025, 0.9994999766);
  expect({4, 1024, 1024}, 1, 0.025, 0.9997500181);
}

// Without the op: p - step m / (sqrt(v) + eps) with the rates of each update.
TEST(ParamTable, T2_32_EpsilonInsideOfTheBiasCorrection) {
  ParamRow row{.label = "x", .lr = 1.0 / 320, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-10};
  EXPECT_EQ(AdamRates(row, 1, 1).eps, 1e-10);
  EXPECT_EQ(AdamRates(row, 0.5, 7).eps, 1e-10);
  row.eps_in_bias_correction = true;
  double p = 0, m = 0, v = 0;
  const double gradients[] = {1e-6, 1e-6, -2e-6};
  const double want[] = {-0.0031246875, -0.0062493751, -0.0057486953};
  for (int t = 1; t <= 3; ++t) {
    const double g = gradients[t - 1];
    m = 0.8 * m + 0.2 * g;
    v = 0.95 * v + 0.05 * g * g;
    const Rates rates = AdamRates(row, 1, t);
    EXPECT_EQ(rates.decay, 1.0);
    p = p * rates.decay - rates.step * m / (std::sqrt(v) + rates.eps);
    EXPECT_NEAR(p, want[t - 1], 1e-10) << t;
  }
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
