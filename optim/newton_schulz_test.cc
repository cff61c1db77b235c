#include "optim/newton_schulz.h"

#include <cmath>
#include <random>

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
  return optim::Orthogonalized(NewtonSchulz(), u);
}

TEST(NewtonSchulz, T1_34_ScalarMap) {
  EXPECT_NEAR(NewtonSchulzScalar(1), 0.696436, 1e-6);
  EXPECT_NEAR(NewtonSchulzScalar(1e-9) / 1e-9, 484.88, 0.01);
  double lowest = 10, highest = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double f = NewtonSchulzScalar(0.01 + 0.99 * i / 200000);
    lowest = std::min(lowest, f);
    highest = std::max(highest, f);
  }
  EXPECT_NEAR(lowest, 0.68183, 1e-5);
  EXPECT_NEAR(highest, 1.13436, 1e-5);
}

TEST(NewtonSchulz, T1_34_GoldenInFloat64) {
  EXPECT_NEAR(FrobeniusNorm(Golden6x12()), 25.0798724, 1e-7);
  const Matrix o = NewtonSchulzOracle(Golden6x12(), 6, 12);
  const std::vector<double> sigma = SingularValues(o, 6, 12);
  const double want[] = {0.682331, 0.728187, 1.12914, 1.13054, 1.13054, 1.13054};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(sigma[i], want[i], 6e-6);
  EXPECT_NEAR(FrobeniusNorm(o), 2.470860, 1e-6);
  EXPECT_NEAR(o[0], -0.267312, 1e-6);
  EXPECT_NEAR(o[1], -0.305466, 1e-6);
  EXPECT_NEAR(o[71], -0.170012, 1e-6);
}

// Three bf16 roundings (2^-9 each, relative) in each of five iterations. The map's slope damps
// old errors near its attracting band; what was seen is below 0.01, and the spec grants 0.02.
TEST(NewtonSchulz, T1_34_GoldenInBf16) {
  HostTensor u(DType::kBF16, {1, 6, 12});
  u.Set(Golden6x12());
  const std::vector<double> got = Orthogonalized(u);
  const Matrix want = NewtonSchulzOracle(Golden6x12(), 6, 12);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.02) << i;
  for (double sigma : SingularValues(got, 6, 12)) {
    EXPECT_GE(sigma, 0.68183 - 0.02);
    EXPECT_LE(sigma, 1.13436 + 0.02);
  }
}

// The batch is a mere convenience: each matrix as if alone, bit by bit.
TEST(NewtonSchulz, BatchedBitsEqualSingleBits) {
  const HostTensor u = RandomTensor(DType::kBF16, {3, 24, 40}, 5);
  const std::vector<double> all = Orthogonalized(u);
  for (int b = 0; b < 3; ++b) {
    HostTensor one(DType::kBF16, {1, 24, 40});
    const std::vector<double> values = u.ToDouble();
    one.Set({values.begin() + b * 960, values.begin() + (b + 1) * 960});
    EXPECT_EQ(Orthogonalized(one),
              std::vector<double>(all.begin() + b * 960, all.begin() + (b + 1) * 960));
  }
}

// Odd shapes against float64, in norm: about six roundings to bf16 (2^-9 each) survive, since the
// map damps old errors; below 0.019 was seen.
TEST(NewtonSchulz, MatchesFloat64) {
  const int64_t shapes[][2] = {{1, 12},  {1, 1},   {2, 7},    {6, 12},
                               {16, 48}, {48, 16}, {33, 130}, {12, 1}};
  for (const auto& [rows, cols] : shapes) {
    const HostTensor u = RandomTensor(DType::kBF16, {1, rows, cols}, 7);
    const std::vector<double> got = Orthogonalized(u);
    const Matrix want = NewtonSchulzOracle(u.ToDouble(), rows, cols);
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]);
    EXPECT_LE(std::sqrt(error), 0.04 * FrobeniusNorm(want)) << rows << " x " << cols;
  }
}

// A vector keeps its direction; its length goes to f(1) = 0.6964, 0.68 to 0.72 in bf16.
TEST(NewtonSchulz, VectorKeepsItsDirection) {
  const HostTensor u = RandomTensor(DType::kBF16, {1, 1, 12}, 3);
  const std::vector<double> o = Orthogonalized(u);
  const std::vector<double> x = u.ToDouble();
  EXPECT_GE(FrobeniusNorm(o), 0.68);
  EXPECT_LE(FrobeniusNorm(o), 0.72);
  double dot = 0;
  for (size_t i = 0; i < x.size(); ++i) dot += x[i] * o[i];
  EXPECT_GE(dot / (FrobeniusNorm(x) * FrobeniusNorm(o)), 0.9999);
}

TEST(NewtonSchulz, T1_36_ZeroStaysZero) {
  const HostTensor u(DType::kBF16, {2, 6, 12});
  for (double value : Orthogonalized(u)) EXPECT_EQ(value, 0.0);
}

// Case O4: the identity comes out within the band, not as itself.
TEST(NewtonSchulz, O4_IdentityLandsInTheBand) {
  HostTensor u(DType::kBF16, {1, 16, 16});
  std::vector<double> identity(256, 0.0);
  for (int i = 0; i < 16; ++i) identity[17 * i] = 1;
  u.Set(identity);
  const std::vector<double> o = Orthogonalized(u);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      if (i != j) {
        EXPECT_EQ(o[16 * i + j], 0.0);
      } else {
        EXPECT_NEAR(o[17 * i], NewtonSchulzScalar(0.25), 0.02);
      }
    }
  }
}

TEST(NewtonSchulz, IsMadeByName) {
  EXPECT_EQ((*MakeOrthogonalizer("newton_schulz"))->name(), "newton_schulz");
  const auto other = MakeOrthogonalizer("qr");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("newton_schulz"), absl::string_view::npos);
}

}  // namespace
}  // namespace optim
