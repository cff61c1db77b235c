#include "kernels/ops/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/head_problem.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::ExpectWithinBf16Steps;
using testing::RelativeError;
using testing::WithinBf16Steps;

// Of gradients of logits before their rounding to bf16: f32, and the digits of the examples.
constexpr double kF32 = 1e-6;

struct Variant {
  const char* name;
  HeadSetting setting;
};

std::vector<Variant> Variants() {
  HeadSetting weights_alone = CustomSizingHead(true);
  weights_alone.loss_weights = {1, 0.5, 0.25, 0.125};
  HeadSetting shift_alone = CustomSizingHead(false);
  shift_alone.softcap_shift = -3;
  HeadSetting isru_of_all = UnifiedHead(true);
  isru_of_all.softcap_kind = SoftCap::kIsru;
  isru_of_all.softcap = 15;
  return {{"Bf16", CustomSizingHead(false)},
          {"Fp8", CustomSizingHead(true)},
          {"UnifiedBf16", UnifiedHead(false)},
          {"UnifiedFp8", UnifiedHead(true)},
          {"FourWeightsFp8", weights_alone},
          {"ShiftBf16", shift_alone},
          {"Isru", IsruHead()},
          {"IsruWeightsFp8", isru_of_all}};
}

class HeadTest : public ::testing::TestWithParam<std::tuple<HeadShape, Variant>> {
 protected:
  HeadShape shape() const { return std::get<0>(GetParam()); }
  const HeadSetting& setting() const { return std::get<1>(GetParam()).setting; }
};

// With the roundings in the oracle, what is left is the f32 arithmetic, a rare logit or gradient
// that falls on the other side of a tie, and the rounding of dx (2^-9 of its largest, some four
// times the root mean square): 2^-6 of the root mean square covers them.
TEST_P(HeadTest, MatchesFloat64) {
  HeadProblem problem(shape(), setting(), shape().slots);
  problem.Run();
  const HeadOracle want =
      RunHeadOracle(problem, problem.x.ToDouble(), problem.w.ToDouble(), /*round=*/true);
  const double tolerance = std::ldexp(1.0, -6);
  EXPECT_LT(RelativeError(problem.losses.ToDouble(), want.losses), 1e-3);
  EXPECT_LT(RelativeError(problem.dx.ToDouble(), want.dx), tolerance);
  EXPECT_LT(RelativeError(problem.dw.ToDouble(), want.dw), tolerance);
  if (setting().loss_weights.empty()) {
    EXPECT_EQ(problem.Losses(), problem.losses.ToDouble());
  }
}

TEST_P(HeadTest, ThreadsChangeNoBit) {
  HeadProblem one(shape(), setting(), 1);
  one.Run(1);
  for (int threads : {2, 3}) {
    HeadProblem more(shape(), setting(), 1);
    more.Run(threads);
    EXPECT_EQ(more.losses.ToDouble(), one.losses.ToDouble());
    EXPECT_EQ(more.dx.ToDouble(), one.dx.ToDouble());
    EXPECT_EQ(more.dw.ToDouble(), one.dw.ToDouble());
  }
}

TEST_P(HeadTest, SlotsAreIndependentBitwise) {
  HeadProblem leaves(shape(), setting(), shape().slots);
  leaves.Run();
  HeadProblem sum(shape(), setting(), 1);
  sum.Run();
  HeadProblem alone(shape(), setting(), shape().slots);
  HeadProblem alone_sum(shape(), setting(), 1);
  for (int64_t slot = 0; slot < shape().slots; ++slot) {
    alone.Run(1, slot, 1, alone.dw.get().Slice(slot, 1));
    alone_sum.Run(1, slot, 1, alone_sum.dw);
  }
  EXPECT_EQ(leaves.losses.ToDouble(), alone.losses.ToDouble());
  EXPECT_EQ(leaves.dx.ToDouble(), alone.dx.ToDouble());
  EXPECT_EQ(leaves.dw.ToDouble(), alone.dw.ToDouble());
  EXPECT_EQ(sum.dw.ToDouble(), alone_sum.dw.ToDouble());
}

std::string TestName(const ::testing::TestParamInfo<std::tuple<HeadShape, Variant>>& test) {
  const auto& [shape, variant] = test.param;
  return absl::StrCat("T", shape.tokens, "V", shape.vocab, variant.name);
}

// {2, 48, 3, 8}: targets that repeat among a row's terms. 259 tokens: a second chunk of rows.
INSTANTIATE_TEST_SUITE_P(
    Shapes, HeadTest,
    ::testing::Combine(::testing::Values(HeadShape{1, 1, 3, 8}, HeadShape{2, 48, 3, 8},
                                         HeadShape{2, 16, 129, 24}, HeadShape{3, 48, 200, 96},
                                         HeadShape{2, 259, 131, 8}, HeadShape{1, 16, 300, 768}),
                       ::testing::ValuesIn(Variants())),
    TestName);

// Central differences of the oracle's summed losses, in each direction of x and w.
TEST(Head, GradientMatchesFiniteDifferences) {
  HeadSetting isru = IsruHead();
  isru.softcap = 0.5;  // of the logits' size, so that it bends
  for (const HeadSetting& setting : {CustomSizingHead(false), UnifiedHead(false), isru}) {
    HeadProblem problem({1, 5, 11, 8}, setting, 1);
    problem.Run();
    const std::vector<double> x = problem.x.ToDouble(), w = problem.w.ToDouble();
    const double h = 1e-5;
    const auto total = [&](const std::vector<double>& at_x, const std::vector<double>& at_w) {
      double sum = 0;
      for (double loss : RunHeadOracle(problem, at_x, at_w, false).losses) sum += loss;
      return sum;
    };
    const auto moved = [](std::vector<double> values, size_t i, double step) {
      values[i] += step;
      return values;
    };
    std::vector<double> dx, dw;
    for (size_t i = 0; i < x.size(); ++i) {
      dx.push_back((total(moved(x, i, h), w) - total(moved(x, i, -h), w)) / (2 * h));
    }
    for (size_t i = 0; i < w.size(); ++i) {
      dw.push_back((total(x, moved(w, i, h)) - total(x, moved(w, i, -h))) / (2 * h));
    }
    // Roundings of logits, of their gradient and of dx, each 2^-9 of its value, none of it summed
    // over more than 11 terms.
    EXPECT_LT(RelativeError(problem.dx.ToDouble(), dx), 0.02) << setting.softcap;
    EXPECT_LT(RelativeError(problem.dw.ToDouble(), dw), 0.02) << setting.softcap;
  }
}

// One row, with class 0 as its target.
HeadProblem SingleRow(double scale, const std::vector<double>& logits, bool fp8 = false) {
  return HeadOfLogits(scale, {logits}, {0}, CustomSizingHead(fp8));
}

TEST(Head, T1_27_CrossEntropyGolden) {
  const HeadProblem problem = SingleRow(1, {2, -1, 0.5});
  problem.Run();
  EXPECT_NEAR(problem.losses.ToDouble()[0], 0.243872, 1e-6);
  const std::vector<double> want = {-0.212610, 0.039358, 0.176683};
  ExpectWithinBf16Steps(LogitGradients(problem)[0], want, 0.5, kF32, "gradient");
}

TEST(Head, T1_26_SoftCap) {
  const std::vector<double> z = SingleRow(1, {0, 10, -40, 40}).Logits();
  EXPECT_EQ(z[0], 15.0);
  for (double value : z) EXPECT_TRUE(value > 0 && value < 30) << value;
  // Two equal logits: p = 1/2 each, so the gradient is half of the slope.
  const HeadProblem flat = SingleRow(1, {0, 0});
  flat.Run();
  EXPECT_EQ(LogitGradients(flat)[0][1], 0.5);
  const HeadProblem steep = SingleRow(1, {10, 10});
  steep.Run();
  EXPECT_TRUE(WithinBf16Steps(LogitGradients(steep)[0][1], 0.660364 / 2, 0.5, kF32));
}

TEST(Head, T2_23_IsruSoftCap) {
  const std::vector<double> logits = {0, 1, 5, 15, 45, -1, -5, -15, -45};
  const std::vector<double> want = {0,         0.997785,  4.743416,   10.606602, 14.230249,
                                    -0.997785, -4.743416, -10.606602, -14.230249};
  const std::vector<double> z = HeadOfLogits(1, {logits}, {0}, IsruHead()).Logits();
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(z[j], want[j], 2e-6) << logits[j];

  // Two equal logits: p = 1/2 each, so the gradient is half of the slope, rounded to bf16.
  const std::vector<std::vector<double>> slopes = {{0, 1}, {15, 0.3535534}, {45, 0.0316228}};
  for (const std::vector<double>& at : slopes) {
    const HeadProblem flat = HeadOfLogits(1, {{at[0], at[0]}}, {0}, IsruHead());
    flat.Run();
    EXPECT_TRUE(WithinBf16Steps(LogitGradients(flat)[0][1], at[1] / 2, 0.5, kF32)) << at[0];
    EXPECT_NEAR(flat.losses.ToDouble()[0], std::log(2.0), 2e-6);
  }
}

// Neither temperature nor shift is read.
TEST(Head, IsruHasTheCapAlone) {
  HeadSetting shifted = IsruHead();
  shifted.softcap_shift = 5;
  const HeadProblem problem = HeadOfLogits(1, {{3, -4, 0.5}}, {0}, shifted);
  EXPECT_EQ(problem.Logits(), HeadOfLogits(1, {{3, -4, 0.5}}, {0}, IsruHead()).Logits());
}

TEST(Head, IsruSaturates) {
  for (double huge : {1e20, 1e38}) {  // the first one's square is infinite, the second one itself
    const double scale = huge > 1e37 ? 100.0 : 1.0;
    const HeadProblem problem = HeadOfLogits(scale, {{-huge, huge, huge}}, {0}, IsruHead());
    EXPECT_EQ(problem.Logits(), (std::vector<double>{-15, 15, 15}));
    problem.Run();
    EXPECT_NEAR(problem.losses.ToDouble()[0], 30 + std::log(2.0), 1e-5);
    for (double g : problem.dw.ToDouble()) EXPECT_EQ(g, 0.0);
    for (double g : problem.dx.ToDouble()) EXPECT_EQ(g, 0.0);
  }
  // All logits far below 0, in rows with and without a tail of a vector.
  for (size_t vocab : {3, 16, 33}) {
    const std::vector<double> row(vocab, -1e6);
    const HeadProblem low = HeadOfLogits(1, {row}, {0}, IsruHead());
    low.Run();
    EXPECT_NEAR(low.losses.ToDouble()[0], std::log(static_cast<double>(vocab)), 2e-6);
  }
}

TEST(Head, IsruNaNReachesTheLoss) {
  for (int at : {0, 1, 2}) {
    std::vector<double> logits = {1, 2, 3};
    logits[at] = NAN;
    const HeadProblem problem = HeadOfLogits(1, {logits}, {0}, IsruHead());
    problem.Run();
    EXPECT_TRUE(std::isnan(problem.losses.ToDouble()[0])) << at;
  }
}

// Equal chunks of a sequence, each with its own mean, have the mean of the whole.
TEST(Head, T2_24_MeanOfChunks) {
  for (const HeadSetting& setting : {CustomSizingHead(false), IsruHead()}) {
    const HeadProblem whole({1, 600, 300, 24}, setting, 1), chunks({4, 150, 300, 24}, setting, 1);
    ASSERT_EQ(whole.x.ToDouble(), chunks.x.ToDouble());
    const std::vector<double> losses = whole.Losses(), of_chunks = chunks.Losses();
    double mean = 0, mean_of_means = 0;
    for (double loss : losses) mean += loss / 600;
    for (int chunk = 0; chunk < 4; ++chunk) {
      double sum = 0;
      for (int t = 0; t < 150; ++t) sum += of_chunks[chunk * 150 + t];
      mean_of_means += sum / 150 / 4;
    }
    EXPECT_NEAR(mean_of_means, mean, 1e-6 * mean);
  }
}

TEST(Head, T1_25_Fp8Scales) {
  // x = 1 -> 0.989743, w = 1 -> 0.875 (saturated).
  const double logit = RoundToBF16(0.989743f * 0.875f);
  EXPECT_NEAR(SingleRow(1, {1.0}, true).Logits()[0], 30 / (1 + std::exp(-logit / 7.5)), 1e-5);
}

// Case N1.
TEST(HeadDeathTest, N1_TargetOutsideTheVocabulary) {
  const HeadProblem problem({2, 3, 11, 8}, {}, 1);
  problem.targets.get().i32()[5] = 11;
  EXPECT_DEATH(problem.Run(), "slot 1, row 2 is 11, outside the vocabulary of 11");
}

// Case N2: at the cap, gradient 0. The last logit overflows f32.
TEST(Head, N2_HugeLogitsSaturate) {
  for (double huge : {2000.0, 1e30, 1e38}) {
    const double scale = huge > 1e37 ? 100.0 : 1.0;
    const HeadProblem problem = SingleRow(scale, {-huge, huge, huge});
    EXPECT_EQ(problem.Logits()[1], 30.0);
    problem.Run();
    EXPECT_NEAR(problem.losses.ToDouble()[0], 30 + std::log(2.0), 1e-5);
    for (double g : problem.dw.ToDouble()) EXPECT_EQ(g, 0.0);
    for (double g : problem.dx.ToDouble()) EXPECT_EQ(g, 0.0);
  }
}

// Case N3: all zero, infinite, and 1000 times larger operands; then a usual one again.
TEST(Head, N3_Fp8OperandsSaturate) {
  const double inf = std::numeric_limits<double>::infinity();
  const double usual = SingleRow(1, {0.5, -0.5}, true).Logits()[0];
  EXPECT_EQ(SingleRow(0, {0.0, 0.0}, true).Logits()[0], 15.0);
  const double saturated = SingleRow(1, {0.875, -0.875}, true).Logits()[0];
  EXPECT_EQ(SingleRow(1, {inf, -inf}, true).Logits()[0], saturated);
  EXPECT_EQ(SingleRow(1, {500.0, -500.0}, true).Logits()[0], saturated);
  EXPECT_EQ(SingleRow(1, {0.5, -0.5}, true).Logits()[0], usual);
}

TEST(Head, NaNReachesTheLoss) {
  for (bool fp8 : {false, true}) {
    const HeadProblem problem = SingleRow(NAN, {1, 2, 3}, fp8);
    problem.Run();
    EXPECT_TRUE(std::isnan(problem.losses.ToDouble()[0]));
  }
}

}  // namespace
}  // namespace kernels
