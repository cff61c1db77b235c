#include "kernels/ops/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::RandomTokens;
using testing::RelativeError;

const HeadPrecision kFp8 = {.fp8 = true,
                            .x_scale = static_cast<float>(std::sqrt(768.0) / 448.0),
                            .w_scale = 1.0f / 512.0f,
                            .grad_scale = 1.0f / 448.0f};

struct Shape {
  int64_t slots, tokens, vocab, dim;
};

struct Problem {
  Problem(Shape s, HeadPrecision p, int64_t leaves)
      : shape(s),
        precision(p),
        x(RandomTensor(DType::kBF16, {s.slots, s.tokens, s.dim}, 1)),
        w(RandomTensor(DType::kBF16, {s.vocab, s.dim}, 2, 0.1)),
        targets(RandomTokens({s.slots, s.tokens}, s.vocab, 3)),
        losses(DType::kF32, {s.slots, s.tokens}),
        dx(DType::kBF16, {s.slots, s.tokens, s.dim}),
        dw(DType::kF32, {leaves, s.vocab, s.dim}) {}

  // The slots [begin, begin + count), with gradients into the leaves of `into`.
  void Run(int threads, int64_t begin, int64_t count, Tensor into) {
    const auto queue = MakeCpuQueue(threads);
    const HostTensor workspace(DType::kF32, {Bytes(*queue) / 4});
    HeadLossGrad(Args(begin, count, workspace), losses.get().Slice(begin, count),
                 dx.get().Slice(begin, count), into, *queue);
    queue->Synchronize();
  }
  void Run(int threads = 1) { Run(threads, 0, shape.slots, dw); }

  std::vector<double> Losses() {
    const auto queue = MakeCpuQueue(1);
    const HostTensor workspace(DType::kF32, {Bytes(*queue) / 4});
    const HostTensor out(DType::kF32, {shape.slots, shape.tokens});
    HeadLoss(Args(0, shape.slots, workspace), out, *queue);
    queue->Synchronize();
    return out.ToDouble();
  }

  HeadArgs Args(int64_t begin, int64_t count, Tensor workspace) const {
    HeadArgs args;
    args.x = x.get().Slice(begin, count);
    args.w = w;
    args.targets = targets.get().Slice(begin, count);
    args.precision = precision;
    args.workspace = workspace;
    return args;
  }
  int64_t Bytes(const Queue& queue) const {
    return HeadWorkspaceBytes(shape.slots, shape.tokens, shape.vocab, shape.dim, queue);
  }

  Shape shape;
  HeadPrecision precision;
  HostTensor x, w, targets, losses, dx, dw;
};

struct Oracle {
  std::vector<double> losses, dx, dw;  // dw [slots, V, D]
};

std::vector<double> Softmax(const std::vector<double>& z, double* log_sum) {
  double sum = 0;
  for (double value : z) sum += std::exp(value);
  std::vector<double> p(z.size());
  for (size_t j = 0; j < z.size(); ++j) p[j] = std::exp(z[j]) / sum;
  *log_sum = std::log(sum);
  return p;
}

// From the definition, in double; with the named roundings of the definition or without any.
Oracle RunOracle(const Problem& problem, std::vector<double> x, bool round) {
  const auto [slots, tokens, vocab, dim] = problem.shape;
  const HeadPrecision& precision = problem.precision;
  std::vector<double> w = problem.w.ToDouble();
  const std::vector<double> targets = problem.targets.ToDouble();
  if (precision.fp8) {
    for (double& v : x) v = RoundToE4M3(static_cast<float>(v) * (1 / precision.x_scale));
    for (double& v : w) v = RoundToE4M3(static_cast<float>(v) * (1 / precision.w_scale));
  }
  const double xs = precision.fp8 ? precision.x_scale : 1;
  const double ws = precision.fp8 ? precision.w_scale : 1;
  const double gs = precision.fp8 ? precision.grad_scale : 1;
  Oracle out{std::vector<double>(slots * tokens), std::vector<double>(x.size()),
             std::vector<double>(slots * vocab * dim)};
  for (int64_t t = 0; t < slots * tokens; ++t) {
    std::vector<double> z(vocab), slope(vocab);
    for (int64_t j = 0; j < vocab; ++j) {
      double logit = 0;
      for (int64_t i = 0; i < dim; ++i) logit += xs * ws * x[t * dim + i] * w[j * dim + i];
      if (round) logit = RoundToBF16(static_cast<float>(logit));
      const double c = 1 / (1 + std::exp(-logit / 7.5));
      z[j] = 30 * c;
      slope[j] = 4 * c * (1 - c);
    }
    const int64_t target = static_cast<int64_t>(targets[t]);
    double log_sum = 0;
    const std::vector<double> p = Softmax(z, &log_sum);
    out.losses[t] = log_sum - z[target];
    for (int64_t j = 0; j < vocab; ++j) {
      double g = (p[j] - (j == target)) * slope[j];
      if (round) g = RoundToBF16(static_cast<float>(g));
      if (precision.fp8) g = RoundToE5M2(static_cast<float>(g) * (1 / precision.grad_scale));
      for (int64_t i = 0; i < dim; ++i) {
        out.dx[t * dim + i] += gs * ws * g * w[j * dim + i];
        out.dw[(t / tokens * vocab + j) * dim + i] += gs * xs * g * x[t * dim + i];
      }
    }
  }
  return out;
}

class HeadTest : public ::testing::TestWithParam<Shape> {};

// With the roundings in the oracle, what is left is the f32 arithmetic, a rare logit or gradient
// that falls on the other side of a tie, and the rounding of dx (2^-9 of its largest, some four
// times the root mean square): 2^-6 of the root mean square covers them.
TEST_P(HeadTest, MatchesFloat64) {
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    Problem problem(GetParam(), precision, GetParam().slots);
    problem.Run();
    const Oracle want = RunOracle(problem, problem.x.ToDouble(), true);
    const double tolerance = std::ldexp(1.0, -6);
    EXPECT_LT(RelativeError(problem.losses.ToDouble(), want.losses), 1e-3) << precision.fp8;
    EXPECT_LT(RelativeError(problem.dx.ToDouble(), want.dx), tolerance) << precision.fp8;
    EXPECT_LT(RelativeError(problem.dw.ToDouble(), want.dw), tolerance) << precision.fp8;
    EXPECT_EQ(problem.Losses(), problem.losses.ToDouble());
  }
}

TEST_P(HeadTest, ThreadsChangeNoBit) {
  Problem one(GetParam(), kFp8, 1);
  one.Run(1);
  for (int threads : {2, 3}) {
    Problem more(GetParam(), kFp8, 1);
    more.Run(threads);
    EXPECT_EQ(more.losses.ToDouble(), one.losses.ToDouble());
    EXPECT_EQ(more.dx.ToDouble(), one.dx.ToDouble());
    EXPECT_EQ(more.dw.ToDouble(), one.dw.ToDouble());
  }
}

TEST_P(HeadTest, SlotsAreIndependentBitwise) {
  Problem leaves(GetParam(), kFp8, GetParam().slots);
  leaves.Run();
  Problem sum(GetParam(), kFp8, 1);
  sum.Run();
  Problem alone(GetParam(), kFp8, GetParam().slots);
  Problem alone_sum(GetParam(), kFp8, 1);
  for (int64_t slot = 0; slot < GetParam().slots; ++slot) {
    alone.Run(1, slot, 1, alone.dw.get().Slice(slot, 1));
    alone_sum.Run(1, slot, 1, alone_sum.dw);
  }
  EXPECT_EQ(leaves.losses.ToDouble(), alone.losses.ToDouble());
  EXPECT_EQ(leaves.dx.ToDouble(), alone.dx.ToDouble());
  EXPECT_EQ(leaves.dw.ToDouble(), alone.dw.ToDouble());
  EXPECT_EQ(sum.dw.ToDouble(), alone_sum.dw.ToDouble());
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadTest,
                         ::testing::Values(Shape{1, 1, 3, 8}, Shape{2, 16, 129, 24},
                                           Shape{3, 48, 200, 96}, Shape{2, 259, 131, 8},
                                           Shape{1, 16, 300, 768}));

TEST(Head, GradientMatchesFiniteDifferences) {
  Problem problem({1, 3, 11, 8}, {}, 1);
  problem.Run();
  const std::vector<double> x = problem.x.ToDouble();
  std::vector<double> want(x.size());
  const double h = 1e-5;
  const auto total = [&](size_t i, double step) {
    std::vector<double> moved = x;
    moved[i] += step;
    double sum = 0;
    for (double loss : RunOracle(problem, moved, false).losses) sum += loss;
    return sum;
  };
  for (size_t i = 0; i < x.size(); ++i) want[i] = (total(i, h) - total(i, -h)) / (2 * h);
  // Roundings of logits, of their gradient and of dx, each 2^-9 of its value, none of it summed
  // over more than 11 terms.
  EXPECT_LT(RelativeError(problem.dx.ToDouble(), want), 0.02);
}

// One row x = (scale, 0, ...) and w[j] = (column[j], 0, ...), so logits are scale * column.
Problem SingleRow(float scale, const std::vector<double>& column, HeadPrecision precision = {}) {
  const int64_t vocab = column.size();
  Problem problem({1, 1, vocab, 8}, precision, 1);
  std::vector<double> x(8), w(vocab * 8);
  x[0] = scale;
  for (int64_t j = 0; j < vocab; ++j) w[j * 8] = column[j];
  problem.x.Set(x);
  problem.w.Set(w);
  problem.targets.get().i32()[0] = 0;
  return problem;
}

std::vector<double> LogitsOf(const Problem& problem) {
  const auto queue = MakeCpuQueue(1);
  const HostTensor workspace(DType::kF32, {problem.Bytes(*queue) / 4});
  const HostTensor logits(DType::kF32, {1, problem.shape.tokens, problem.shape.vocab});
  HeadLogits(problem.Args(0, 1, workspace), logits, *queue);
  queue->Synchronize();
  return logits.ToDouble();
}

TEST(Head, T1_27_CrossEntropyGolden) {
  Problem problem = SingleRow(1, {2, -1, 0.5});
  problem.Run();
  EXPECT_NEAR(problem.losses.ToDouble()[0], 0.243872, 1e-6);
  const std::vector<double> want = {-0.212610, 0.039358, 0.176683};
  for (int j = 0; j < 3; ++j) {  // one rounding to bf16
    EXPECT_NEAR(problem.dw.ToDouble()[j * 8], want[j], std::fabs(want[j]) * std::ldexp(1.0, -8));
  }
}

TEST(Head, T1_26_SoftCap) {
  const std::vector<double> z = LogitsOf(SingleRow(1, {0, 10, -40, 40}));
  EXPECT_EQ(z[0], 15.0);
  for (double value : z) EXPECT_TRUE(value > 0 && value < 30) << value;
  // Two equal logits: p = 1/2 each, so the gradient is half of the slope.
  Problem flat = SingleRow(1, {0, 0});
  flat.Run();
  EXPECT_EQ(flat.dw.ToDouble()[8], 0.5);
  Problem steep = SingleRow(1, {10, 10});
  steep.Run();
  EXPECT_NEAR(steep.dw.ToDouble()[8], 0.660364 / 2, 0.33 * std::ldexp(1.0, -8));
}

TEST(Head, T1_25_Fp8Scales) {
  // x = 1 -> 0.989743, w = 1 -> 0.875 (saturated).
  const double logit = RoundToBF16(0.989743f * 0.875f);
  EXPECT_NEAR(LogitsOf(SingleRow(1, {1.0}, kFp8))[0], 30 / (1 + std::exp(-logit / 7.5)), 1e-5);
}

// Case N1.
TEST(HeadDeathTest, N1_TargetOutsideTheVocabulary) {
  Problem problem({2, 3, 11, 8}, {}, 1);
  problem.targets.get().i32()[5] = 11;
  EXPECT_DEATH(problem.Run(), "slot 1, row 2 is 11, outside the vocabulary of 11");
}

// Case N2: at the cap, gradient 0. The last logit overflows f32.
TEST(Head, N2_HugeLogitsSaturate) {
  for (double huge : {2000.0, 1e30, 1e38}) {
    const float scale = huge > 1e37 ? 100.0f : 1.0f;
    Problem problem = SingleRow(scale, {-huge, huge, huge});
    EXPECT_EQ(LogitsOf(problem)[1], 30.0);
    problem.Run();
    EXPECT_NEAR(problem.losses.ToDouble()[0], 30 + std::log(2.0), 1e-5);
    for (double g : problem.dw.ToDouble()) EXPECT_EQ(g, 0.0);
    for (double g : problem.dx.ToDouble()) EXPECT_EQ(g, 0.0);
  }
}

// Case N3: all zero, infinite, and 1000 times larger operands; then a usual one again.
TEST(Head, N3_Fp8OperandsSaturate) {
  const double inf = std::numeric_limits<double>::infinity();
  const double usual = LogitsOf(SingleRow(1, {0.5, -0.5}, kFp8))[0];
  EXPECT_EQ(LogitsOf(SingleRow(0, {0.0, 0.0}, kFp8))[0], 15.0);
  const double saturated = LogitsOf(SingleRow(1, {0.875, -0.875}, kFp8))[0];
  EXPECT_EQ(LogitsOf(SingleRow(1, {inf, -inf}, kFp8))[0], saturated);
  EXPECT_EQ(LogitsOf(SingleRow(1, {500.0, -500.0}, kFp8))[0], saturated);
  EXPECT_EQ(LogitsOf(SingleRow(1, {0.5, -0.5}, kFp8))[0], usual);
}

TEST(Head, NaNReachesTheLoss) {
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    Problem problem = SingleRow(NAN, {1, 2, 3}, precision);
    problem.Run();
    EXPECT_TRUE(std::isnan(problem.losses.ToDouble()[0]));
  }
}

}  // namespace
}  // namespace kernels
