#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::WithinBf16Steps;

constexpr float kScale = 1.05f, kLoneScale = 1.1f, kEps = 1e-6f;

// u u^T or u^T u of one matrix.
std::vector<double> Gram(const std::vector<double>& u, int64_t rows, int64_t cols) {
  const int64_t side = std::min(rows, cols);
  std::vector<double> a(side * side, 0.0);
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t j = 0; j < side; ++j) {
      for (int64_t k = 0; k < rows * cols / side; ++k) {
        a[i * side + j] +=
            rows <= cols ? u[i * cols + k] * u[j * cols + k] : u[k * cols + i] * u[k * cols + j];
      }
    }
  }
  return a;
}

// A batch with its Gram matrices, in bf16.
struct Batch {
  Batch(int64_t matrices, int64_t rows, int64_t cols)
      : u(DType::kBF16, {matrices, rows, cols}),
        x(DType::kBF16, {matrices, rows, cols}),
        gram(DType::kBF16, {matrices, std::min(rows, cols), std::min(rows, cols)}) {}
  void Set(const std::vector<double>& values) {
    u.Set(values);
    const std::vector<double> rounded = u.ToDouble();
    const int64_t rows = u.get().dim(1), cols = u.get().dim(2), size = rows * cols;
    std::vector<double> all;
    for (size_t at = 0; at < rounded.size(); at += size) {
      const auto first = rounded.begin() + static_cast<int64_t>(at);
      for (double a : Gram(std::vector<double>(first, first + size), rows, cols)) all.push_back(a);
    }
    gram.Set(all);
  }
  void Run(int threads = 1) const {
    NormalizeByGram(
        {.u = u, .gram = gram, .x = x, .scale = kScale, .lone_scale = kLoneScale, .eps = kEps},
        *MakeCpuQueue(threads));
  }
  HostTensor u, x, gram;
};

void ExpectDivided(const std::vector<double>& got, const std::vector<double>& from, int64_t begin,
                   int64_t size, double divisor) {
  for (int64_t i = begin; i < begin + size; ++i) {
    const double want = from[i] / divisor;
    // One rounding to bf16, and the f32 norm.
    ASSERT_TRUE(WithinBf16Steps(got[i], want, 0.5, 1e-5 * std::fabs(want))) << i;
  }
}

TEST(GramNorm, AN_10_DividesByTheTracesRoot) {
  for (const auto& [rows, cols] : {std::pair{2, 3}, {6, 12}, {12, 6}, {33, 130}, {130, 131}}) {
    Batch b(3, rows, cols);
    b.Set(RandomTensor(DType::kBF16, {3, rows, cols}, 1, 3.0).ToDouble());
    const std::vector<double> gram = b.gram.ToDouble();
    b.Run(2);
    const int64_t side = std::min(rows, cols), size = rows * cols, square = side * side;
    for (int64_t m = 0; m < 3; ++m) {
      double trace = 0;
      for (int64_t i = 0; i < side; ++i) trace += gram[m * square + i * (side + 1)];
      double share = 0;
      for (int64_t i = 0; i < square; ++i) share += std::pow(gram[m * square + i] / trace, 2);
      ASSERT_LT(share, 0.96);  // none of these is alone
      const double d = kScale * std::sqrt(trace) + kEps;
      ExpectDivided(b.x.ToDouble(), b.u.ToDouble(), m * size, size, d);
      ExpectDivided(b.gram.ToDouble(), gram, m * square, square, d * d);
    }
  }
}

// In place, and whatever the number of threads.
TEST(GramNorm, SameBitsInPlaceAndOnMoreThreads) {
  Batch one(2, 150, 131), more(2, 150, 131);
  const std::vector<double> values = RandomTensor(DType::kBF16, {2, 150, 131}, 1).ToDouble();
  one.Set(values);
  more.Set(values);
  one.Run(1);
  NormalizeByGram({.u = more.u,
                   .gram = more.gram,
                   .x = more.u,
                   .scale = kScale,
                   .lone_scale = kLoneScale,
                   .eps = kEps},
                  *MakeCpuQueue(3));
  EXPECT_EQ(more.u.ToDouble(), one.x.ToDouble());
  EXPECT_EQ(more.gram.ToDouble(), one.gram.ToDouble());
}

// The second singular value decides: its square is `rest` of the first's.
TEST(GramNorm, ALoneSingularValueGetsMoreMargin) {
  for (double rest : {0.0, 0.01, 0.02, 0.1}) {
    Batch b(1, 2, 3);
    b.Set({2, 0, 0, 0, 2 * std::sqrt(rest), 0});
    b.Run();
    const double share = (1 + rest * rest) / ((1 + rest) * (1 + rest));
    const double scale = share > 0.97 ? kLoneScale : kScale;
    const double want = 1 / (scale * std::sqrt(1 + rest));
    EXPECT_NEAR(b.x.ToDouble()[0], want, 0.004 * want) << rest;
    EXPECT_NEAR(b.gram.ToDouble()[0], want * want, 0.008 * want * want) << rest;
  }
}

TEST(GramNorm, EdgeMatrices) {
  const double inf = std::numeric_limits<double>::infinity();
  Batch zero(1, 2, 3);
  zero.Run();
  for (double x : zero.x.ToDouble()) EXPECT_EQ(x, 0);
  for (double a : zero.gram.ToDouble()) EXPECT_EQ(a, 0);
  // A square norm of 2^124 still fits, although that of the Gram matrix does not.
  Batch large(1, 2, 2);
  large.Set({0x1p62, 0, 0, 0x1p61});
  large.Run();
  const double norm = std::sqrt(1.25) * kScale;
  EXPECT_NEAR(large.x.ToDouble()[0], 1 / norm, 0.004);
  EXPECT_NEAR(large.gram.ToDouble()[3], 0.25 / norm / norm, 0.001);
  for (double bad : {0x1p70, inf, -inf, std::nan("")}) {
    Batch b(1, 2, 2);
    b.Set({1, 2, bad, 3});
    b.Run();
    int nans = 0;
    for (double a : b.gram.ToDouble()) nans += std::isnan(a);
    for (double x : b.x.ToDouble()) nans += std::isnan(x);
    EXPECT_GT(nans, 0) << bad;
  }
}

}  // namespace
}  // namespace kernels
