#include "optim/anvil_cascade.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

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
  return optim::Orthogonalized(AnvilCascade(), u);
}

std::vector<double> Orthogonalized(const Matrix& u, int64_t rows, int64_t cols) {
  const HostTensor input(DType::kBF16, {1, rows, cols});
  input.Set(u);
  return Orthogonalized(input);
}

double ToBF16(double x) { return kernels::RoundToBF16(static_cast<float>(x)); }

TEST(AnvilCascade, AN_08_ScalarMap) {
  EXPECT_NEAR(CascadeScalar(1e-9) / 1e-9, 643.133485, 1e-6);
  const double want[][2] = {{0.001, 0.58454118}, {0.003, 0.99506720},   {0.01, 1.00026686},
                            {0.05, 1.00011335},  {0.1, 0.99959977},     {0.5, 1.00015046},
                            {0.9, 1.00009960},   {1 / 1.05, 1.00040139}};
  for (const auto& [s, f] : want) EXPECT_NEAR(CascadeScalar(s), f, 1e-8) << s;
  double lowest = 10, highest = 0, lowest_above = 10;
  for (int i = 0; i <= 200000; ++i) {
    const double s = 0.003 + (1 / 1.05 - 0.003) * i / 200000;
    const double f = CascadeScalar(s);
    lowest = std::min(lowest, f);
    highest = std::max(highest, f);
    if (s >= 0.01) lowest_above = std::min(lowest_above, f);
  }
  EXPECT_NEAR(lowest, 0.995067, 1e-6);
  EXPECT_NEAR(highest, 1.000401, 1e-6);
  // It lies at the steep end, where the points above are coarse.
  EXPECT_NEAR(lowest_above, 0.999341, 5e-6);
}

// The margin of 1.05 keeps all singular values below the edge, and that of the lone ones too.
TEST(AnvilCascade, AN_09_TheEdge) {
  EXPECT_NEAR(CascadeScalar(0.95239646), 1.01, 1e-3);
  EXPECT_GT(CascadeScalar(0.9525), 20);
  EXPECT_GT(CascadeScalar(0.98), std::numeric_limits<float>::max());
  EXPECT_NEAR(CascadeScalar(1 / 1.1), 1, 4e-4);
}

// In float64; and the op, which keeps bf16 between products, against the same with these roundings.
// Where f32 sums round the other way, by 2^-9, the later iterations correct most of it: their slope
// at 1 is near zero.
void ExpectPolar(const Matrix& u, int64_t rows, int64_t cols, const Matrix& want) {
  const Matrix exact = CascadeOracle(u, rows, cols);
  const Matrix stored = CascadeOracle(u, rows, cols, ToBF16);
  const std::vector<double> got = Orthogonalized(u, rows, cols);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(exact[i], want[i], 1e-8) << i;
    EXPECT_NEAR(got[i], stored[i], 0.008) << i;
  }
}

TEST(AnvilCascade, AN_06_Diagonal) {
  ExpectPolar({3, 0, 0, 0, 4, 0}, 2, 3, {1.00006661, 0, 0, 0, 1.00012249, 0});
}

// Its first singular value is 0.9967 of the norm, so the op takes the larger margin: the oracle
// with the record's gives the fact, that with the op's what the op does.
TEST(AnvilCascade, AN_07_WideAndTall) {
  const Matrix u = {1, 2, 3, 4, 5, 6};
  const Matrix want = {-0.57743874, 0.11524022, 0.80791919, 0.70677459, 0.56593881, 0.42510303};
  const Matrix polar = {-0.57779183, 0.1151167, 0.80802522, 0.70674602, 0.56575744, 0.42476886};
  const Matrix exact = CascadeOracle(u, 2, 3);
  const Matrix stored = CascadeOracle(u, 2, 3, ToBF16, 1.1);
  const std::vector<double> wide = Orthogonalized(u, 2, 3);
  const std::vector<double> tall = Orthogonalized(Transposed(u, 2, 3), 3, 2);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(exact[i], want[i], 1e-8) << i;
    EXPECT_NEAR(exact[i], polar[i], 5e-4) << i;
    EXPECT_NEAR(wide[i], stored[i], 0.008) << i;
    EXPECT_NEAR(wide[i], polar[i], 0.015) << i;
  }
  const Matrix back = Transposed(tall, 3, 2);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(back[i], stored[i], 0.008) << i;
}

// A first Gram matrix that is computed from the rounded X, as those of the later rounds are, gives
// other bits.
TEST(AnvilCascade, AN_10_TheFirstGramIsRescaled) {
  const HostTensor u = RandomTensor(DType::kBF16, {1, 16, 48}, 7);
  const Matrix want = CascadeOracle(u.ToDouble(), 16, 48, ToBF16);
  const std::vector<double> got = Orthogonalized(u);
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error += std::pow(got[i] - want[i], 2);
  // Of 768 values of 2^-9 at most a few round the other way.
  EXPECT_LE(std::sqrt(error), 0.002 * FrobeniusNorm(want));
}

TEST(AnvilCascade, AN_08_RangeInBf16) {
  const HostTensor golden(DType::kBF16, {1, 6, 12});
  golden.Set(Golden6x12());
  const HostTensor wide = RandomTensor(DType::kBF16, {1, 24, 96}, 4);
  for (const HostTensor* u : std::vector<const HostTensor*>{&golden, &wide}) {
    const int64_t rows = u->get().dim(1), cols = u->get().dim(2);
    for (double sigma : SingularValues(Orthogonalized(*u), rows, cols)) {
      EXPECT_GE(sigma, 0.98);
      EXPECT_LE(sigma, 1.02);
    }
  }
}

// Odd shapes against float64, in norm: the map is flat, so little of the roundings is left.
TEST(AnvilCascade, MatchesFloat64) {
  const int64_t shapes[][2] = {{2, 7}, {6, 12}, {16, 48}, {48, 16}, {33, 130}};
  for (const auto& [rows, cols] : shapes) {
    const HostTensor u = RandomTensor(DType::kBF16, {1, rows, cols}, 7);
    const std::vector<double> got = Orthogonalized(u);
    const Matrix want = CascadeOracle(u.ToDouble(), rows, cols);
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) error += std::pow(got[i] - want[i], 2);
    EXPECT_LE(std::sqrt(error), 0.02 * FrobeniusNorm(want)) << rows << " x " << cols;
  }
}

TEST(AnvilCascade, ZeroStaysZero) {
  const HostTensor u(DType::kBF16, {2, 6, 12});
  for (double value : Orthogonalized(u)) EXPECT_EQ(value, 0.0);
}

// As one matrix of a batch it has the bits that it has alone.
TEST(AnvilCascade, MatricesOfABatchAreAlone) {
  const HostTensor all = RandomTensor(DType::kBF16, {3, 12, 6}, 5);
  const std::vector<double> together = Orthogonalized(all);
  for (int64_t b = 0; b < 3; ++b) {
    const std::vector<double> values = all.ToDouble();
    const std::vector<double> alone =
        Orthogonalized(Matrix(values.begin() + 72 * b, values.begin() + 72 * (b + 1)), 12, 6);
    EXPECT_EQ(alone,
              std::vector<double>(together.begin() + 72 * b, together.begin() + 72 * (b + 1)));
  }
}

// Rank one up to the roundings of u to bf16, which are singular values of their own below 0.004 of
// the first; of any shape, among them 1 x 1. The first becomes 1, in its direction, and none is
// above. With the margin of 1.05 nearly every second such matrix ends at 1e20 or beyond.
TEST(AnvilCascade, AN_09_RankOne) {
  const int64_t shapes[][2] = {{1, 1}, {1, 12}, {12, 1}, {2, 3}, {6, 12}, {16, 16}, {48, 16}};
  for (const auto& [rows, cols] : shapes) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      const std::vector<double> left = RandomTensor(DType::kF32, {rows}, seed).ToDouble();
      const std::vector<double> right = RandomTensor(DType::kF32, {cols}, 100 + seed).ToDouble();
      const Matrix u = Product(left, right, rows, 1, cols);
      const std::vector<double> o = Orthogonalized(u, rows, cols);
      double along = 0;
      for (size_t i = 0; i < u.size(); ++i) along += u[i] / FrobeniusNorm(u) * o[i];
      ASSERT_NEAR(along, 1, 0.02) << rows << " x " << cols << ", seed " << seed;
      const int64_t side = std::min(rows, cols);
      const Matrix wide = rows <= cols ? o : Transposed(o, rows, cols);
      ASSERT_LE(SingularValues(wide, side, rows * cols / side).back(), 1.02)
          << rows << " x " << cols;
    }
  }
}

// Two singular values, the second so small that the first is nearly alone, or just not any more.
TEST(AnvilCascade, NearlyRankOneStaysInTheBand) {
  for (double second : {0.03, 0.06, 0.1, 0.12, 0.15, 0.2}) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      Matrix u(6 * 12, 0.0);
      for (int k = 0; k < 2; ++k) {
        const Matrix left = RandomTensor(DType::kF32, {6}, 7 * seed + k).ToDouble();
        const Matrix right = RandomTensor(DType::kF32, {12}, 500 + 7 * seed + k).ToDouble();
        const Matrix part = Product(left, right, 6, 1, 12);
        const double size = (k == 0 ? 1 : second) / FrobeniusNorm(part);
        for (size_t i = 0; i < u.size(); ++i) u[i] += size * part[i];
      }
      const std::vector<double> sigma = SingularValues(Orthogonalized(u, 6, 12), 6, 12);
      ASSERT_NEAR(sigma[5], 1, 0.02) << second << ", seed " << seed;
    }
  }
}

// As large as its squares can be in f32, and as small as the epsilon lets show.
TEST(AnvilCascade, HugeAndTinyEntries) {
  const std::vector<double> values = RandomTensor(DType::kBF16, {1, 6, 12}, 3).ToDouble();
  for (double scale : {0x1p58, 0x1p-10}) {
    Matrix u = values;
    for (double& x : u) x *= scale;
    for (double sigma : SingularValues(Orthogonalized(u, 6, 12), 6, 12)) {
      EXPECT_NEAR(sigma, 1, 0.02) << scale;
    }
  }
  // Far below the epsilon of 1e-6 the slope at zero is left.
  Matrix u = values;
  for (double& x : u) x *= 0x1p-40;
  const std::vector<double> o = Orthogonalized(u, 6, 12);
  for (size_t i = 0; i < u.size(); ++i) {
    const double want = CascadeScalar(1e-9) * 1e9 * u[i] * 1e6;
    EXPECT_NEAR(o[i], want, 0.05 * std::fabs(want) + 1e-9) << i;
  }
}

// Neither a finite matrix that is wrong nor a partly finite one.
TEST(AnvilCascade, NotFiniteBecomesNanThroughout) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [rows, cols] : {std::pair{3, 5}, {5, 3}, {1, 1}}) {
    for (double bad : {inf, -inf, std::nan(""), 0x1p64}) {
      Matrix u = RandomTensor(DType::kBF16, {rows * cols}, 3).ToDouble();
      u[rows * cols / 2] = bad;
      for (double x : Orthogonalized(u, rows, cols)) {
        EXPECT_TRUE(std::isnan(x)) << rows << " x " << cols << ", " << bad;
      }
    }
  }
}

TEST(AnvilCascade, IsMadeByName) {
  EXPECT_EQ((*MakeOrthogonalizer("anvil_cascade"))->name(), "anvil_cascade");
}

}  // namespace
}  // namespace optim
