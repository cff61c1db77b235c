#include "optim/polar_express.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/orthogonalizer_testing.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

std::vector<double> Orthogonalized(const HostTensor& u) {
  return optim::Orthogonalized(PolarExpress(), u);
}

TEST(PolarExpress, T1_35_ScalarMap) {
  EXPECT_NEAR(QuinticScalar(kPolarExpressRule, 1e-9) / 1e-9, 989.47, 0.01);
  EXPECT_NEAR(QuinticScalar(kPolarExpressRule, 1e-4), 0.0988, 1e-4);
  double lowest = 10, highest = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double s = 0.001 + (1 / 1.02 - 0.001) * i / 200000;
    const double f = QuinticScalar(kPolarExpressRule, s);
    lowest = std::min(lowest, f);
    highest = std::max(highest, f);
  }
  EXPECT_NEAR(lowest, 0.858873, 1e-5);
  EXPECT_NEAR(highest, 1.141127, 1e-5);
}

// The slope at zero is the product of the five first coefficients.
TEST(PolarExpress, UO_44_ScalarMap) {
  EXPECT_NEAR(QuinticScalar(kPolarExpressRule, 1e-9) / 1e-9, 989.468, 5e-4);
  const double want[][2] = {{0.001, 0.85887264}, {0.003, 0.96638289},   {0.01, 1.02711018},
                            {0.05, 0.90855828},  {0.1, 1.05916114},     {0.2, 0.87225326},
                            {0.3, 0.98314195},   {0.5, 0.91061088},     {0.7, 0.93563357},
                            {0.9, 0.87492166},   {1 / 1.02, 0.90353742}};
  for (const auto& [s, f] : want) EXPECT_NEAR(QuinticScalar(kPolarExpressRule, s), f, 1e-8) << s;
}

// In float64; and the op, which keeps bf16 between products, against the same with these roundings.
// Where f32 sums round the other way, by 2^-9, the later iterations make at most 4 times that of
// it.
void ExpectPolar(const Matrix& u, int64_t rows, int64_t cols, const Matrix& want) {
  const Matrix exact = QuinticOracle(kPolarExpressRule, u, rows, cols);
  const Matrix stored = QuinticOracle(kPolarExpressRule, u, rows, cols, [](double x) -> double {
    return kernels::RoundToBF16(static_cast<float>(x));
  });
  HostTensor input(DType::kBF16, {1, rows, cols});
  input.Set(u);
  const std::vector<double> got = Orthogonalized(input);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(exact[i], want[i], 1e-8) << i;
    EXPECT_NEAR(got[i], stored[i], 0.008) << i;
  }
}

TEST(PolarExpress, UO_33_Diagonal) {
  ExpectPolar({3, 0, 0, 0, 4, 0}, 2, 3, {0.94678256, 0, 0, 0, 0.8782846, 0});
}

TEST(PolarExpress, UO_34_WideAndTall) {
  const Matrix want = {-0.55776344, 0.09305344, 0.74387032, 0.6393245, 0.49701054, 0.35469659};
  ExpectPolar({1, 2, 3, 4, 5, 6}, 2, 3, want);
  ExpectPolar(Transposed({1, 2, 3, 4, 5, 6}, 2, 3), 3, 2, Transposed(want, 2, 3));
}

TEST(PolarExpress, T1_35_GoldenInFloat64) {
  const Matrix o = QuinticOracle(kPolarExpressRule, Golden6x12(), 6, 12);
  const std::vector<double> sigma = SingularValues(o, 6, 12);
  const double want[] = {0.985568, 0.986799, 1.047585, 1.047585, 1.047585, 1.110755};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(sigma[i], want[i], 1e-6);
  EXPECT_NEAR(FrobeniusNorm(o), 2.543855, 1e-6);
  EXPECT_NEAR(o[0], -0.411094, 1e-6);
  EXPECT_NEAR(o[1], -0.291105, 1e-6);
  EXPECT_NEAR(o[71], -0.250861, 1e-6);
}

TEST(PolarExpress, T1_35_RangeInBf16) {
  HostTensor golden(DType::kBF16, {1, 6, 12});
  golden.Set(Golden6x12());
  const HostTensor wide = RandomTensor(DType::kBF16, {1, 24, 96}, 4);
  for (const HostTensor* u : std::vector<const HostTensor*>{&golden, &wide}) {
    const int64_t rows = u->get().dim(1), cols = u->get().dim(2);
    for (double sigma : SingularValues(Orthogonalized(*u), rows, cols)) {
      EXPECT_GE(sigma, 0.858873 - 0.02);
      EXPECT_LE(sigma, 1.141127 + 0.02);
    }
  }
}

// Odd shapes against float64, in norm. The map is steeper than Newton-Schulz's, so roundings of
// the first iterations (2^-9 each) show more.
TEST(PolarExpress, MatchesFloat64) {
  const int64_t shapes[][2] = {{2, 7}, {6, 12}, {16, 48}, {48, 16}, {33, 130}};
  for (const auto& [rows, cols] : shapes) {
    const HostTensor u = RandomTensor(DType::kBF16, {1, rows, cols}, 7);
    const std::vector<double> got = Orthogonalized(u);
    const Matrix want = QuinticOracle(kPolarExpressRule, u.ToDouble(), rows, cols);
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]);
    EXPECT_LE(std::sqrt(error), 0.06 * FrobeniusNorm(want)) << rows << " x " << cols;
  }
}

// The map is steep near the norm of a vector, so only the direction is certain.
TEST(PolarExpress, VectorKeepsItsDirection) {
  const HostTensor u = RandomTensor(DType::kBF16, {1, 1, 12}, 3);
  const std::vector<double> o = Orthogonalized(u), x = u.ToDouble();
  EXPECT_NEAR(FrobeniusNorm(o), 1.0, 0.16);
  double dot = 0;
  for (size_t i = 0; i < x.size(); ++i) dot += x[i] * o[i];
  EXPECT_GE(dot / (FrobeniusNorm(x) * FrobeniusNorm(o)), 0.9999);
}

TEST(PolarExpress, T1_36_ZeroStaysZero) {
  const HostTensor u(DType::kBF16, {2, 6, 12});
  for (double value : Orthogonalized(u)) EXPECT_EQ(value, 0.0);
}

TEST(PolarExpress, IsMadeByName) {
  EXPECT_EQ((*MakeOrthogonalizer("polar_express"))->name(), "polar_express");
}

}  // namespace
}  // namespace optim
