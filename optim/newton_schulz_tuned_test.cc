#include "optim/newton_schulz_tuned.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

constexpr const QuinticRule& kRule = kNewtonSchulzTunedRule;

std::vector<double> Orthogonalized(const HostTensor& u) {
  return optim::Orthogonalized(NewtonSchulzTuned(), u);
}

double RelativeError(const Matrix& got, const Matrix& want) {
  Matrix difference = got;
  for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
  return FrobeniusNorm(difference) / FrobeniusNorm(want);
}

TEST(NewtonSchulzTuned, T2_25_ScalarMap) {
  const double want[][2] = {{0.001, 0.47498}, {0.003, 1.07514},   {0.005, 1.11151}, {0.01, 1.01803},
                            {0.02, 1.01877},  {0.03125, 0.99755}, {0.05, 1.01064},  {0.1, 1.01905},
                            {0.3, 0.99622},   {0.5, 0.98587},     {0.9, 0.97991},   {1, 0.97835}};
  for (const auto& [s, f] : want) EXPECT_NEAR(QuinticScalar(kRule, s), f, 5.1e-6) << s;
  EXPECT_NEAR(QuinticScalar(kRule, 1e-9) / 1e-9, 492.75, 0.01);
  double lowest = 10, highest = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double f = QuinticScalar(kRule, 0.01 + 0.99 * i / 200000);
    lowest = std::min(lowest, f);
    highest = std::max(highest, f);
  }
  EXPECT_NEAR(lowest, 0.97775, 1e-5);
  EXPECT_NEAR(highest, 1.03178, 1e-5);
  double peak = 0, at = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double s = i / 200000.0;
    if (QuinticScalar(kRule, s) > peak) peak = QuinticScalar(kRule, at = s);
  }
  EXPECT_NEAR(peak, 1.14502, 1e-5);
  EXPECT_NEAR(at, 0.00407, 1e-5);
}

// In float64, where 1e-5 holds. And the op, which keeps bf16 between products, against the same
// with these roundings: f32 sums that round the other way, by 2^-9, are damped near the band.
void ExpectOrthogonal(const Matrix& u, int64_t rows, int64_t cols, const Matrix& want) {
  const Matrix exact = QuinticOracle(kRule, u, rows, cols);
  const Matrix stored = QuinticOracle(kRule, u, rows, cols, [](double x) -> double {
    return kernels::RoundToBF16(static_cast<float>(x));
  });
  HostTensor input(DType::kBF16, {1, rows, cols});
  input.Set(u);
  const std::vector<double> got = Orthogonalized(input);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(exact[i], want[i], 1e-6) << i;
    EXPECT_NEAR(got[i], stored[i], 0.008) << i;
  }
}

TEST(NewtonSchulzTuned, T2_25_Diagonal) {
  ExpectOrthogonal({1, 0, 0, 0.5}, 2, 2, {1.007630, 0, 0, 1.001745});
}

TEST(NewtonSchulzTuned, T2_25_T2_26_ColumnAndRow) {
  ExpectOrthogonal({3, 4}, 2, 1, {0.587007, 0.782677});
  ExpectOrthogonal({3, 4}, 1, 2, {0.587007, 0.782677});
}

TEST(NewtonSchulzTuned, T2_25_ZeroStaysZero) {
  for (double value : QuinticOracle(kRule, Matrix(72, 0.0), 6, 12)) EXPECT_EQ(value, 0.0);
  const HostTensor u(DType::kBF16, {2, 6, 12});
  for (double value : Orthogonalized(u)) EXPECT_EQ(value, 0.0);
}

TEST(NewtonSchulzTuned, T2_25_BF16OnGaussianMatrices) {
  const int64_t shapes[][2] = {{64, 128}, {128, 64}, {128, 128}, {96, 384}};
  for (const auto& [rows, cols] : shapes) {
    const HostTensor u = RandomTensor(DType::kBF16, {1, rows, cols}, 7);
    const Matrix want = QuinticOracle(kRule, u.ToDouble(), rows, cols);
    EXPECT_LE(RelativeError(Orthogonalized(u), want), 0.02) << rows << " x " << cols;
  }
}

// More rows than columns: the same as on the transpose, but for the order of sums; two such
// results differ by no more than each does from the exact one.
TEST(NewtonSchulzTuned, T2_26_TallIsTheTranspose) {
  const HostTensor tall = RandomTensor(DType::kBF16, {1, 128, 64}, 5);
  HostTensor wide(DType::kBF16, {1, 64, 128});
  wide.Set(Transposed(tall.ToDouble(), 128, 64));
  const Matrix want = Transposed(Orthogonalized(wide), 64, 128);
  EXPECT_LE(RelativeError(Orthogonalized(tall), want), 0.02);
}

// Each slice is normalised by its own norm and has the bits that it has alone.
TEST(NewtonSchulzTuned, T2_26_StackIsPerSlice) {
  constexpr int64_t kSize = 24 * 24;
  const HostTensor random = RandomTensor(DType::kBF16, {4, 24, 24}, 5);
  std::vector<double> values = random.ToDouble();
  for (int64_t i = 0; i < kSize; ++i) values[i] *= 64;  // a slice of another size
  std::fill_n(values.begin() + 2 * kSize, kSize, 0.0);  // and one of zeros
  HostTensor stack(DType::kBF16, {4, 24, 24});
  stack.Set(values);
  const std::vector<double> all = Orthogonalized(stack);
  for (int b = 0; b < 4; ++b) {
    const auto begin = values.begin() + b * kSize;
    HostTensor one(DType::kBF16, {1, 24, 24});
    one.Set({begin, begin + kSize});
    EXPECT_EQ(Orthogonalized(one), Matrix(all.begin() + b * kSize, all.begin() + (b + 1) * kSize));
  }
}

TEST(NewtonSchulzTuned, IsMadeByName) {
  EXPECT_EQ((*MakeOrthogonalizer("newton_schulz_tuned"))->name(), "newton_schulz_tuned");
}

}  // namespace
}  // namespace optim
