// The head against the CPU's. Where logits are sums of many products, sums of another order (in fp8
// with a shorter accumulator, too) push some to the next bf16 number, and g8 then sometimes to the
// next e5m2 number, a step of up to 1/4. Hence two kinds of test: random operands with bounds on
// norms, and rows of x with a single entry, whose logits and whose dw are free of sums and must
// agree element by element.
#include "kernels/ops/head.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/head_problem.h"

namespace kernels {
namespace {

// A target's logit below 32 that goes to the next bf16 number moves its loss by up to 1/8. In fp8
// about a tenth of the logits do; a target whose g8 does moves all of its row of dx by up to a
// quarter, and one row of 16 by a quarter is 0.06 of the norm.
TEST_F(HeadTest, RandomOperands) {
  for (const HeadShape& s : std::vector<HeadShape>{{1, 16, 128, 64},
                                                   {2, 48, 384, 128},
                                                   {3, 208, 128, 768},
                                                   {1, 208, 384, 64},
                                                   {2, 16, 50304, 128},
                                                   {1, 48, 9216, 768},
                                                   {1, 16, 65536, 64}}) {
    for (const HeadSetting& head : kHeadSettings) {
      const bool fp8 = head.precision.fp8;
      for (const int64_t leaves : {int64_t{1}, s.slots}) {
        const std::string text = absl::StrCat(Text(s, head), ", leaves ", leaves);
        const Problem p = Random(s, head, leaves);
        Grad(p);
        ExpectClose(p.losses, 1e-5, 0.125, "losses, " + text);
        ExpectNormClose(p.losses, fp8 ? 5e-3 : 2e-3, "losses, " + text);
        ExpectNormClose(p.dx, fp8 ? 0.08 : 1.0 / 128, "dx, " + text);
        ExpectNormClose(p.dw, fp8 ? 0.08 : 1.0 / 128, "dw, " + text);
        if (leaves == s.slots) break;  // one slot: both are the same
      }
    }
  }
}

// Losses: some f32 roundings and the exponentials' 2^-22 on numbers up to 30. dw in bf16: a
// fixed-point c that is off by 7.6e-6 changes c (1 - c) by 5e-4 of itself and p by 3e-4, and that
// may end at the next bf16 number, 2^-7 away; where the weighted p of a target nears its weight,
// their difference loses what f32 has. In fp8 a step is a quarter, taken by about one element in a
// thousand: 0.25 / sqrt(1000) = 0.008 of the norm.
TEST_F(HeadTest, SingleEntriesAgreeElementByElement) {
  for (const HeadShape& s : std::vector<HeadShape>{
           {1, 16, 128, 64}, {3, 48, 384, 128}, {2, 208, 384, 256}, {1, 48, 50304, 64}}) {
    for (const HeadSetting& head : kHeadSettings) {
      const std::string text = Text(s, head);
      const Problem p = SingleEntries(s, head, s.slots, 2, UniformWeight(s, head));
      Grad(p);
      ExpectEachClose(p.losses, 2e-6, 1e-5, "losses, " + text);
      if (head.precision.fp8) {
        ExpectNormClose(p.dw, 0.02, "dw, " + text);
        ExpectNormClose(p.dx, 0.02, "dx, " + text);
      } else {
        ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 2e-6, "dw, " + text);
        ExpectClose(p.dx, 1.0 / 64, 0, "dx, " + text);
      }
    }
  }
}

// x = 4 at one place, so the logits are +-300, +-1200 and infinite. The fixed-point c moves slopes
// by at most 4 * 7.6e-6.
TEST_F(HeadTest, SaturatedLogitsHaveNoGradient) {
  const HeadShape s = {2, 48, 384, 64};
  std::vector<double> values(s.vocab * s.dim);
  std::mt19937 random(1);
  for (double& value : values) {
    constexpr double kValues[] = {0.5, -1, 10, 75, -75, 300, -300, 3e38, -3e38};
    value = kValues[random() % 9];
  }
  for (const HeadSetting& head : {kBf16Head, kUnifiedBf16Head}) {
    const Twin weight = Of(DType::kBF16, WeightDims(s, head), values);
    const Problem p = SingleEntries(s, head, 2, 4, weight);
    Grad(p);
    ExpectEachClose(p.losses, 2e-6, 1e-5, "losses, " + head.name);
    ExpectEachClose(p.dw, 1.0 / 128, 2e-4, "dw, " + head.name);
    const std::vector<double> w = OnHost(p.w.cuda), dw = OnHost(p.dw.cuda);
    for (size_t i = 0; i < w.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      const int64_t feature = head.w_transposed ? at / s.vocab : at % s.dim;
      if (feature < s.tokens && std::fabs(w[i]) >= 300) {
        EXPECT_EQ(dw[i], 0.0) << head.name << " " << i;
      }
    }
  }
  // fp8 operands saturate at 448, so logits stay small and gradients finite.
  for (const HeadSetting& head : {kFp8Head, kUnifiedFp8Head}) {
    const Twin weight = Of(DType::kBF16, WeightDims(s, head), values);
    const Problem q = SingleEntries(s, head, 2, 4, weight);
    Grad(q);
    ExpectEachClose(q.losses, 2e-6, 1e-5, "losses, " + head.name);
    ExpectNormClose(q.dw, 0.02, "dw, " + head.name);
  }
}

// Slopes fall as the cube of 1 / |logit| only: at 300 there is a gradient still.
TEST_F(HeadTest, SaturatedLogitsOfTheInverseRoot) {
  const HeadShape s = {2, 48, 384, 64};
  std::vector<double> values(s.vocab * s.dim);
  std::mt19937 random(2);
  for (double& value : values) {
    constexpr double kValues[] = {0.5, -1, 10, 75, -75, 300, 1e19, -1e19, 3e38, -3e38};
    value = kValues[random() % 10];
  }
  for (const HeadSetting& head : {kIsruHead, kIsruWeightsHead}) {
    const Problem p = SingleEntries(s, head, 2, 4, Of(DType::kBF16, WeightDims(s, head), values));
    Grad(p);
    ExpectEachClose(p.losses, 2e-6, 1e-5, "losses, " + head.name);
    ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 2e-6, "dw, " + head.name);
    const std::vector<double> w = OnHost(p.w.cuda), dw = OnHost(p.dw.cuda);
    for (size_t i = 0; i < dw.size(); ++i) {
      if (std::fabs(w[i % w.size()]) >= 1e19) {
        ASSERT_EQ(dw[i], 0.0) << head.name << " " << i;
      }
    }
  }
}

TEST_F(HeadTest, T2_23_IsruSoftCap) {
  const std::vector<double> logits = {0, 1, 5, 15, 45, -1, -5, -15, -45};
  const std::vector<double> want = {0,         0.997785,  4.743416,   10.606602, 14.230249,
                                    -0.997785, -4.743416, -10.606602, -14.230249};
  const HeadShape s = {1, 16, 128, 16};
  std::vector<double> w(s.vocab * s.dim);
  for (size_t j = 0; j < logits.size(); ++j) w[j * s.dim] = logits[j];
  const Problem p = SingleEntries(s, kIsruHead, 1, 1, Of(DType::kBF16, {s.vocab, s.dim}, w));
  const Twin z = Output(DType::kF32, {1, s.tokens, s.vocab});
  HeadLogits(Args(p, Side::kCuda), z.cuda, cuda());
  cuda().Synchronize();
  const std::vector<double> got = OnHost(z.cuda);
  // 6e-8 of each of four roundings and 2.4e-7 of the root, on numbers up to 15, and 5e-7 of `want`.
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(got[j], want[j], 8e-6) << logits[j];
}

// A class's NaN, in either kind of exponential, reaches every loss of its row.
TEST_F(HeadTest, IsruKeepsTheNaNOfOneClass) {
  const HeadShape s = {1, 16, 128, 64};
  for (const int64_t row : {0, 1, 2, 3, 14, 15}) {
    const Problem p = SingleEntries(s, kIsruHead, 1, 2, UniformWeight(s, kIsruHead));
    std::vector<double> w = OnHost(p.w.cuda);
    w[(8 * row + row % 8) * s.dim + row] = NAN;  // x has zeros elsewhere, and 0 * NaN is NaN
    Set(p.w.cuda, w);
    HeadLossGrad(GradArgs(p, Side::kCuda), p.losses.cuda, p.dx.cuda, p.dw.cuda, cuda());
    cuda().Synchronize();
    for (double loss : OnHost(p.losses.cuda)) EXPECT_TRUE(std::isnan(loss)) << row;
    HeadLoss(Args(p, Side::kCuda), p.losses.cuda, cuda());
    cuda().Synchronize();
    for (double loss : OnHost(p.losses.cuda)) EXPECT_TRUE(std::isnan(loss)) << row;
  }
}

// The whole, of two chunks of rows, has the mean of its four parts. Logits are free of sums.
TEST_F(HeadTest, T2_24_MeanOfChunks) {
  const HeadShape s = {1, 4 * 8192, 128, 64}, parts = {4, 8192, 128, 64};
  std::vector<double> x(s.tokens * s.dim);
  for (int64_t t = 0; t < s.tokens; ++t) x[t * s.dim + t % s.dim] = 2;
  const Problem p = Make(s, kIsruHead, 1, Of(DType::kBF16, {1, s.tokens, s.dim}, x),
                         Uniform(DType::kBF16, {s.vocab, s.dim}, -15, 15));
  Problem q = Make(parts, kIsruHead, 1, Twin(), p.w);
  q.x.cuda = p.x.cuda.Reshape({4, 8192, 64});
  q.targets.cuda = p.targets.cuda.Reshape({4, 8192});
  HeadLoss(Args(p, Side::kCuda), p.losses.cuda, cuda());
  HeadArgs args = Args(p, Side::kCuda);
  args.x = q.x.cuda;
  args.targets = q.targets.cuda;
  HeadLoss(args, q.losses.cuda, cuda());
  cuda().Synchronize();
  double whole = 0, chunks = 0;
  for (double loss : OnHost(p.losses.cuda)) whole += loss / (4 * 8192);
  for (double loss : OnHost(q.losses.cuda)) chunks += loss / (4 * 8192);
  EXPECT_NEAR(chunks, whole, 1e-6 * whole);
}

TEST_F(HeadTest, LossesOnly) {
  for (const HeadShape& s :
       std::vector<HeadShape>{{1, 16, 128, 64}, {3, 48, 384, 128}, {1, 5, 50304, 64}}) {
    for (const HeadSetting& head : kHeadSettings) {
      const Problem p = SingleEntries(s, head, 1, 2, UniformWeight(s, head));
      Both([&](Side side, Queue& queue) { HeadLoss(Args(p, side), p.losses.on(side), queue); });
      ExpectEachClose(p.losses, 2e-6, 1e-5, Text(s, head));
    }
  }
}

TEST_F(HeadTest, OtherCapAndShift) {
  const HeadShape s = {1, 48, 384, 64};
  for (const float shift : {0.0f, -3.0f}) {
    const Problem p =
        SingleEntries(s, kBf16Head, 1, 2, Uniform(DType::kBF16, {s.vocab, s.dim}, -10, 10));
    Both([&](Side side, Queue& queue) {
      HeadArgs args = Args(p, side);
      args.softcap = 15;
      args.softcap_temperature = 15;
      args.softcap_shift = shift;
      HeadLossGrad(args, p.losses.on(side), p.dx.on(side), p.dw.on(side), queue);
    });
    ExpectEachClose(p.losses, 2e-6, 1e-5, "losses");
    ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 1e-6, "dw");
  }
}

TEST_F(HeadTest, Logits) {
  for (const int64_t n : {1, 5, 48}) {
    for (const HeadSetting& head : kHeadSettings) {
      const HeadShape s = {1, n, 384, 64};
      const Problem p = SingleEntries(
          s, head, 1, 2,
          Uniform(DType::kBF16, WeightDims(s, head), head.precision.fp8 ? -1 : -50, 1));
      const Twin z = Output(DType::kF32, {1, n, s.vocab});
      Both([&](Side side, Queue& queue) {
        HeadArgs args = Args(p, side);
        args.targets = Tensor();
        HeadLogits(args, z.on(side), queue);
      });
      ExpectEachClose(z, 3e-6, 1e-6, Text(s, head));
    }
  }
}

TEST_F(HeadTest, Repeats) {
  for (const HeadSetting& head : kHeadSettings) {
    const Problem p = Random({2, 208, 384, 768}, head, 1);
    const std::vector<float> zeros(p.dw.cuda.size());
    ExpectRepeats(
        [&](Queue& queue) {
          queue.Upload(zeros.data(), p.dw.cuda);
          HeadLossGrad(GradArgs(p, Side::kCuda), p.losses.cuda, p.dx.cuda, p.dw.cuda, queue);
        },
        {p.losses.cuda, p.dx.cuda, p.dw.cuda});
  }
}

// A pass of three slots gives the bits of three passes of one, with a leaf per slot and with one
// leaf for all, to which the slots add in turn.
TEST_F(HeadTest, SlotsAreIndependentBitwise) {
  const HeadShape s = {3, 208, 384, 256};
  for (const HeadSetting& head : kHeadSettings) {
    for (const int64_t leaves : {1, 3}) {
      const Problem p = Random(s, head, leaves);
      const std::vector<float> zeros(p.dw.cuda.size());
      Queue& queue = deterministic();
      const auto run = [&](int64_t begin, int64_t count) {
        HeadLossGrad(GradArgs(p, Side::kCuda, begin, count), p.losses.cuda.Slice(begin, count),
                     p.dx.cuda.Slice(begin, count),
                     leaves == 1 ? p.dw.cuda : p.dw.cuda.Slice(begin, count), queue);
      };
      run(0, 3);
      queue.Synchronize();
      const std::vector<uint8_t> together = Results(p);
      queue.Upload(zeros.data(), p.dw.cuda);
      for (const int64_t slot : {0, 1, 2}) run(slot, 1);
      queue.Synchronize();
      EXPECT_EQ(Results(p) == together, true) << head.name << ", leaves " << leaves;
    }
  }
}

TEST_F(HeadTest, NaNAndBadTargetsReachTheirOwnLossAlone) {
  const HeadShape s = {1, 16, 384, 64};
  for (const HeadSetting& head : kHeadSettings) {
    const Problem p = Random(s, head, 1);
    std::vector<double> x = OnHost(p.x.cuda), targets = OnHost(p.targets.cuda);
    x[3 * s.dim + 5] = NAN;
    targets[7] = static_cast<double>(s.vocab);
    targets[8] = -1;
    Set(p.x.cuda, x);
    Set(p.targets.cuda, targets);
    // Targets 7 and 8 are bad; a row has as many targets as weights.
    const auto expect = [&](int weights, const char* what) {
      const std::vector<double> losses = OnHost(p.losses.cuda);
      for (int t = 0; t < 16; ++t) {
        const bool bad = t <= 8 && t + weights > 7;
        EXPECT_EQ(std::isnan(losses[t]), t == 3 || bad) << head.name << what << t;
      }
    };
    HeadLossGrad(GradArgs(p, Side::kCuda), p.losses.cuda, p.dx.cuda, p.dw.cuda, cuda());
    cuda().Synchronize();
    expect(head.loss_weights.empty() ? 1 : 3, ", with gradient, row ");
    HeadLoss(Args(p, Side::kCuda), p.losses.cuda, cuda());
    cuda().Synchronize();
    expect(1, ", losses only, row ");
  }
}

// More rows than multiprocessors, so that blocks go from row to row; the CPU as the oracle.
TEST_F(HeadTest, ManyRows) {
  const HeadShape s = {1, 2048, 1024, 128};
  for (const HeadSetting& head : kHeadSettings) {
    const Problem p = Random(s, head, 1);
    Grad(p);
    ExpectClose(p.losses, 1e-5, 0.125, Text(s, head));
    ExpectNormClose(p.dx, head.precision.fp8 ? 0.05 : 1.0 / 128, Text(s, head));
    ExpectNormClose(p.dw, head.precision.fp8 ? 0.05 : 1.0 / 128, Text(s, head));
  }
}

}  // namespace
}  // namespace kernels
