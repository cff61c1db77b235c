// The head of modded-nanogpt's record of 2026-01-18: shifted soft cap, losses of several tokens,
// a transposed weight.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/head_problem.h"
#include "kernels/ops/head.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::ExpectWithinBf16Steps;
using testing::HostTensor;
using testing::kBf16Roundoff;
using testing::RelativeError;
using testing::WithinBf16Steps;

// Of gradients of logits before their rounding to bf16: f32, and the digits of the examples.
constexpr double kF32 = 1e-6;

TEST(HeadMultiToken, UO_18_ShiftedSoftCap) {
  const std::vector<double> logits = {0, -5, -20, -10, 1, 5, 10, 20, 30};
  const std::vector<double> want = {15.1973965, 11.5,       2.7416672,  7.8026035, 15.8694131,
                                    18.2020039, 20.2583328, 22.2077605, 22.7857329};
  const std::vector<double> z = HeadOfLogits(1, {logits}, {0}, UnifiedHead(false)).Logits();
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(z[j], want[j], 4e-6) << logits[j];

  // The derivative at 0: by differences of z, which is f32 (2e-6 of rounding over 2 h, and
  // h^2 / 6 z''' = 5e-7), and as the gradient of two equal logits, p = 1/2 each.
  const double h = 1.0 / 64;
  const std::vector<double> beside = HeadOfLogits(1, {{h, -h}}, {0}, UnifiedHead(false)).Logits();
  EXPECT_NEAR((beside[0] - beside[1]) / (2 * h), 0.68741600, 1e-4);
  const HeadProblem flat = HeadOfLogits(1, {{0, 0}}, {0}, UnifiedHead(false));
  flat.Run();
  EXPECT_TRUE(WithinBf16Steps(LogitGradients(flat)[0][1], 0.68741600 / 2, 0.5, kF32));
}

HeadProblem LossExample() {
  return HeadOfLogits(1, {{1, -2, 0.5, 3}, {0, 0, 0, 0}, {2, 1, -1, -3}}, {3, 0, 1},
                      UnifiedHead(false));
}

TEST(HeadMultiToken, UO_19_LossExample) {
  const HeadProblem problem = LossExample();
  problem.Run();
  const std::vector<double> want = {2.2021619, 2.0794415, 1.1649268};
  for (int t = 0; t < 3; ++t) EXPECT_NEAR(problem.losses.ToDouble()[t], want[t], 2e-6) << t;
}

TEST(HeadMultiToken, UO_20_GradientExample) {
  const HeadProblem problem = LossExample();
  problem.Run();
  const std::vector<std::vector<double>> got = LogitGradients(problem);
  const std::vector<double> first = {-0.11145635, -0.15440485, 0.15918421, 0.08332665};
  const std::vector<double> last = {0.36711774, -0.45135669, 0.05645328, 0.01365762};
  ExpectWithinBf16Steps(got[0], first, 0.5, kF32, "first");
  ExpectWithinBf16Steps(got[2], last, 0.5, kF32, "last");
}

// At zero logits each term is ln V. The last two rows lack 0.25 and 0.5 + 0.25 of the weights.
TEST(HeadMultiToken, UO_21_SlotLossIsASum) {
  constexpr int64_t kTokens = 64, kVocab = 50304;
  const HeadProblem problem({1, kTokens, kVocab, 8}, UnifiedHead(false), 1);
  problem.x.Set(std::vector<double>(kTokens * 8));
  problem.Run(2);
  double sum = 0;
  for (double loss : problem.losses.ToDouble()) sum += loss;
  EXPECT_NEAR(sum, std::log(kVocab) * (kTokens * 1.75 - 1.0), 1e-3 * sum);
  // A whole slot of 16384 tokens.
  EXPECT_NEAR(sum / (kTokens * 1.75 - 1.0) * (16384 * 1.75 - 1.0), 3.105e5, 300);
}

TEST(HeadMultiToken, UO_22_Fp8Scales) {
  const HeadSetting setting = UnifiedHead(true);
  EXPECT_NEAR(setting.precision.x_scale, 0.2232142857, 1e-8);
  EXPECT_NEAR(setting.precision.w_scale, 0.0035714286, 1e-9);
  EXPECT_NEAR(setting.precision.grad_scale, 0.0016741071, 1e-9);
  // x = 1 is 4.48 steps and becomes 4.5. w = 1.6 is 448.
  const auto z = [](double logit) {
    const double rounded = RoundToBF16(static_cast<float>(logit));
    return 23 / (1 + std::exp(-(rounded + 5) / 7.5));
  };
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> got =
      HeadOfLogits(1, {{1.6, -1.6, 3, -inf, 0.8}}, {0}, setting).Logits();
  const double limit = 4.5 * 0.2232142857 * 1.6;
  const std::vector<double> want = {z(limit), z(-limit), z(limit), z(-limit), z(limit / 2)};
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(got[j], want[j], 1e-5) << j;

  // Gradients beyond 57344 * grad_scale = 96 saturate, those below half of 2^-16 * grad_scale are
  // 0. x is 4.5 of its steps.
  for (const auto& [weight, step] : {std::pair{1000.0, 57344.0}, {1e-7, 0x1p-16}, {1e-8, 0.0}}) {
    HeadSetting one = setting;
    one.loss_weights = {weight};
    const HeadProblem problem = HeadOfLogits(1, {{0, 0}}, {0}, one);
    problem.Run();
    const double g = step * 0.75 / 448 * 4.5 * 100 / 448;
    EXPECT_NEAR(LogitGradients(problem)[0][0], -g, 1e-6 * g) << weight;
    EXPECT_NEAR(LogitGradients(problem)[0][1], g, 1e-6 * g) << weight;
  }
}

// The gradient lies as the weight does, and holds what the other layout's does, but for the order
// of sums: see HeadTest.MatchesFloat64 for the tolerance.
TEST(HeadMultiToken, UO_23_GradientHasTheWeightsLayout) {
  const HeadShape s = {2, 16, 304, 768};
  for (bool fp8 : {false, true}) {
    const HeadProblem here(s, UnifiedHead(fp8), 1);
    HeadSetting setting = UnifiedHead(fp8);
    setting.w_transposed = false;
    const HeadProblem there(s, setting, 1);
    const std::vector<double> w = there.w.ToDouble();
    std::vector<double> transposed(w.size());
    for (int64_t j = 0; j < s.vocab; ++j) {
      for (int64_t i = 0; i < s.dim; ++i) transposed[here.Index(j, i)] = w[there.Index(j, i)];
    }
    here.w.Set(transposed);
    here.Run();
    there.Run();
    EXPECT_EQ(here.dw.get().dim(1), 768);
    EXPECT_EQ(here.dw.get().dim(2), s.vocab);
    const std::vector<double> dw = there.dw.ToDouble();
    std::vector<double> want(dw.size());
    for (int64_t j = 0; j < s.vocab; ++j) {
      for (int64_t i = 0; i < s.dim; ++i) want[here.Index(j, i)] = dw[there.Index(j, i)];
    }
    EXPECT_LT(RelativeError(here.dw.ToDouble(), want), std::ldexp(1.0, -6)) << fp8;
    EXPECT_LT(RelativeError(here.dx.ToDouble(), there.dx.ToDouble()), std::ldexp(1.0, -6)) << fp8;
    EXPECT_LT(RelativeError(here.Losses(), there.Losses()), 1e-3) << fp8;
    EXPECT_LT(RelativeError(here.Logits(), there.Logits()), 1e-3) << fp8;
  }
}

TEST(HeadMultiToken, RepeatedTargetsAddUp) {
  HeadSetting setting = UnifiedHead(false);
  setting.loss_weights = {1, 0.5, 0.25, 0.125};
  const HeadProblem problem =
      HeadOfLogits(1, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}, {0, 1, 0, 0}, setting);
  problem.Run();
  // Class 0 has 1 + 0.25 + 0.125 of the weights' 1.875, class 1 has 0.5.
  const double slope = 0.68741600;
  const std::vector<double> got = LogitGradients(problem)[0];
  // Each row's gradient is rounded, all at the same place of their binades, as they are powers of
  // two apart: so the sum has the relative error of one.
  EXPECT_NEAR(got[0], (0.9375 - 1.375) * slope, 0.4375 * slope * kBf16Roundoff);
  EXPECT_NEAR(got[1], (0.9375 - 0.5) * slope, 0.4375 * slope * kBf16Roundoff);
}

// One weight of 1 is no weights; zero weights are no terms. Bit for bit.
TEST(HeadMultiToken, ZeroWeightsAreNoTerms) {
  for (bool fp8 : {false, true}) {
    HeadSetting setting = UnifiedHead(fp8);
    setting.loss_weights.clear();
    const HeadShape s = {2, 16, 24, 8};
    const HeadProblem none(s, setting, 1);
    none.Run();
    for (const std::vector<double>& weights : {std::vector<double>{1}, {1, 0}, {1, 0, 0, 0}}) {
      setting.loss_weights = weights;
      const HeadProblem some(s, setting, 1);
      some.Run();
      EXPECT_EQ(some.losses.ToDouble(), none.losses.ToDouble());
      EXPECT_EQ(some.dx.ToDouble(), none.dx.ToDouble());
      EXPECT_EQ(some.dw.ToDouble(), none.dw.ToDouble());
    }
  }
}

TEST(HeadMultiTokenDeathTest, ChecksItsArguments) {
  const auto queue = MakeCpuQueue(1);
  HeadProblem problem({1, 3, 16, 8}, UnifiedHead(false), 1);
  const HostTensor workspace(DType::kF32, {problem.WorkspaceFloats(*queue)});
  HeadArgs args = problem.Args(0, 1, workspace);
  const auto grad = [&](const HeadArgs& with, Tensor dw) {
    HeadLossGrad(with, problem.losses, problem.dx, dw, *queue);
  };
  EXPECT_DEATH(grad(args, problem.dw.get().Reshape({1, 16, 8})), "HeadLossGrad: dw");
  args.loss_weights = problem.loss_weights;
  EXPECT_DEATH(HeadLoss(args, problem.losses, *queue), "HeadLossGrad's alone");
  problem.loss_weights.Set({1, -0.5, 0.25});
  EXPECT_DEATH(grad(args, problem.dw), "loss weight 1 is -0.5");
  const HostTensor five(DType::kF32, {5});
  args.loss_weights = five;
  EXPECT_DEATH(grad(args, problem.dw), "1 to 4");
  args.loss_weights = Tensor();
  args.w_transposed = false;
  EXPECT_DEATH(HeadLoss(args, problem.losses, *queue), "HeadLoss: x");
}

}  // namespace
}  // namespace kernels
