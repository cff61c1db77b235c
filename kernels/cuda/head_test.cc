// The head against the CPU's. Where logits are sums of many products, sums of another order (in fp8
// with a shorter accumulator, too) push some to the next bf16 number, and g8 then sometimes to the
// next e5m2 number, a step of up to 1/4. Hence two kinds of test: random operands with bounds on
// norms, and rows of x with a single entry, whose logits and whose dw are free of sums and must
// agree element by element.
#include "kernels/ops/head.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

const HeadPrecision kFp8 = {.fp8 = true,
                            .x_scale = static_cast<float>(std::sqrt(768.0) / 448.0),
                            .w_scale = 1.0f / 512.0f,
                            .grad_scale = 1.0f / 448.0f};

struct Shape {
  int64_t slots, tokens, vocab, dim;
};

std::string Text(const Shape& s, const HeadPrecision& precision) {
  return absl::StrCat("slots ", s.slots, ", T ", s.tokens, ", V ", s.vocab, ", D ", s.dim,
                      precision.fp8 ? ", fp8" : ", bf16");
}

class HeadTest : public CudaTest {
 protected:
  struct Problem {
    Shape shape;
    Twin x, w, targets, losses, dx, dw, workspace;
  };

  Problem Make(Shape s, int64_t leaves, const Twin& x, const Twin& w) {
    const int64_t bytes = std::max(HeadWorkspaceBytes(s.slots, s.tokens, s.vocab, s.dim, cpu()),
                                   HeadWorkspaceBytes(s.slots, s.tokens, s.vocab, s.dim, cuda()));
    return {.shape = s,
            .x = x,
            .w = w,
            .targets = Ints({s.slots, s.tokens}, 0, static_cast<int32_t>(s.vocab)),
            .losses = Output(DType::kF32, {s.slots, s.tokens}),
            .dx = Output(DType::kBF16, {s.slots, s.tokens, s.dim}),
            .dw = Zeros(DType::kF32, {leaves, s.vocab, s.dim}),
            .workspace = Workspace(bytes)};
  }

  // One for all problems of a test that fit.
  Twin Workspace(int64_t bytes) {
    if (workspace_.cpu.empty() || workspace_.cpu.bytes() < bytes) {
      workspace_ = Output(DType::kF32, {bytes / 4 + 1});
    }
    return workspace_;
  }

  Problem Random(Shape s, int64_t leaves) {
    const Twin x = Normal(DType::kBF16, {s.slots, s.tokens, s.dim});
    return Make(s, leaves, x, Normal(DType::kBF16, {s.vocab, s.dim}, 0.1));
  }

  // Row t of each slot is `scale` at t and 0 elsewhere, so logit[t, j] = scale * w[j, t] and
  // dw[j, t] = scale * g[t, j]. T <= D.
  Problem SingleEntries(Shape s, int64_t leaves, double scale, const Twin& w) {
    std::vector<double> x(s.slots * s.tokens * s.dim);
    for (int64_t row = 0; row < s.slots * s.tokens; ++row) {
      x[row * s.dim + row % s.tokens] = scale;
    }
    return Make(s, leaves, Of(DType::kBF16, {s.slots, s.tokens, s.dim}, x), w);
  }

  static HeadArgs Args(const Problem& p, const HeadPrecision& precision, Side side,
                       int64_t begin = 0, int64_t count = -1) {
    if (count < 0) count = p.shape.slots;
    return {.x = p.x.on(side).Slice(begin, count),
            .w = p.w.on(side),
            .targets = p.targets.on(side).Slice(begin, count),
            .precision = precision,
            .workspace = p.workspace.on(side)};
  }

  void Grad(const Problem& p, const HeadPrecision& precision) {
    Both([&](Side side, Queue& queue) {
      HeadLossGrad(Args(p, precision, side), p.losses.on(side), p.dx.on(side), p.dw.on(side),
                   queue);
    });
  }

  // |cuda - cpu| <= relative * |cpu| + absolute, element by element.
  void ExpectEachClose(const Twin& twin, double relative, double absolute,
                       const std::string& what) {
    const std::vector<double> want = OnHost(twin.cpu), got = OnHost(twin.cuda);
    int64_t bad = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::fabs(got[i] - want[i]) <= relative * std::fabs(want[i]) + absolute) continue;
      if (++bad == 1) ADD_FAILURE() << what << ": [" << i << "] " << got[i] << " for " << want[i];
    }
    EXPECT_EQ(bad, 0) << what << " of " << want.size();
  }

  std::vector<uint8_t> Results(const Problem& p) {
    std::vector<uint8_t> all;
    for (const Tensor& tensor : {p.losses.cuda, p.dx.cuda, p.dw.cuda}) {
      const std::vector<uint8_t> bytes = Bytes(tensor);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  Twin workspace_;
};

// A target's logit below 32 that goes to the next bf16 number moves its loss by up to 1/8. In fp8
// about a tenth of the logits do; a target whose g8 does moves all of its row of dx by up to a
// quarter, and one row of 16 by a quarter is 0.06 of the norm.
TEST_F(HeadTest, RandomOperands) {
  for (const Shape& s : std::vector<Shape>{{1, 16, 128, 64},
                                           {2, 48, 384, 128},
                                           {3, 208, 128, 768},
                                           {1, 208, 384, 64},
                                           {2, 16, 50304, 128},
                                           {1, 48, 9216, 768},
                                           {1, 16, 65536, 64}}) {
    for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
      for (const int64_t leaves : {int64_t{1}, s.slots}) {
        const std::string text = absl::StrCat(Text(s, precision), ", leaves ", leaves);
        const Problem p = Random(s, leaves);
        Grad(p, precision);
        ExpectClose(p.losses, 1e-5, 0.125, "losses, " + text);
        ExpectNormClose(p.losses, precision.fp8 ? 5e-3 : 2e-3, "losses, " + text);
        ExpectNormClose(p.dx, precision.fp8 ? 0.08 : 1.0 / 128, "dx, " + text);
        ExpectNormClose(p.dw, precision.fp8 ? 0.08 : 1.0 / 128, "dw, " + text);
        if (leaves == s.slots) break;  // one slot: both are the same
      }
    }
  }
}

// Logits from -30 to 30. Losses: some f32 roundings and the exponentials' 2^-22 on numbers up to
// 30. dw in bf16: a fixed-point c that is off by 7.6e-6 changes c (1 - c) by 5e-4 of itself and p
// by 3e-4, and that may end at the next bf16 number, 2^-7 away; p of the target nears 1, where
// p - 1 loses what f32 has. In fp8 a step is a quarter, taken by about one element in a thousand:
// 0.25 / sqrt(1000) = 0.008 of the norm.
TEST_F(HeadTest, SingleEntriesAgreeElementByElement) {
  for (const Shape& s : std::vector<Shape>{
           {1, 16, 128, 64}, {3, 48, 384, 128}, {2, 208, 384, 256}, {1, 48, 50304, 64}}) {
    for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
      const std::string text = Text(s, precision);
      // In fp8 |w| saturates at 0.875 and logits are of its size; in bf16 x = 2 and |w| <= 15.
      const Twin w = precision.fp8 ? Uniform(DType::kBF16, {s.vocab, s.dim}, -1, 1)
                                   : Uniform(DType::kBF16, {s.vocab, s.dim}, -15, 15);
      const Problem p = SingleEntries(s, s.slots, 2, w);
      Grad(p, precision);
      ExpectEachClose(p.losses, 2e-6, 1e-5, "losses, " + text);
      if (precision.fp8) {
        ExpectNormClose(p.dw, 0.02, "dw, " + text);
        ExpectNormClose(p.dx, 0.02, "dx, " + text);
      } else {
        ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 1e-6, "dw, " + text);
        ExpectClose(p.dx, 1.0 / 64, 0, "dx, " + text);
      }
    }
  }
}

// x = 4 at one place, so the logits are +-300, +-1200 and infinite. The fixed-point c moves slopes
// by at most 4 * 7.6e-6.
TEST_F(HeadTest, SaturatedLogitsHaveNoGradient) {
  const Shape s = {2, 48, 384, 64};
  std::vector<double> values(s.vocab * s.dim);
  std::mt19937 random(1);
  for (double& value : values) {
    constexpr double kValues[] = {0.5, -1, 10, 75, -75, 300, -300, 3e38, -3e38};
    value = kValues[random() % 9];
  }
  const Problem p = SingleEntries(s, 2, 4, Of(DType::kBF16, {s.vocab, s.dim}, values));
  Grad(p, {});
  ExpectEachClose(p.losses, 2e-6, 1e-5, "losses");
  ExpectEachClose(p.dw, 1.0 / 128, 2e-4, "dw");
  const std::vector<double> w = OnHost(p.w.cuda), dw = OnHost(p.dw.cuda);
  for (size_t i = 0; i < w.size(); ++i) {
    const bool used = static_cast<int64_t>(i) % s.dim < s.tokens;
    if (used && std::fabs(w[i]) >= 300) {
      EXPECT_EQ(dw[i], 0.0) << i;
    }
  }
  // fp8 operands saturate at 448, so logits stay small and gradients finite.
  const Problem q = SingleEntries(s, 2, 4, p.w);
  Grad(q, kFp8);
  ExpectEachClose(q.losses, 2e-6, 1e-5, "losses, fp8");
  ExpectNormClose(q.dw, 0.02, "dw, fp8");
}

TEST_F(HeadTest, LossesOnly) {
  for (const Shape& s :
       std::vector<Shape>{{1, 16, 128, 64}, {3, 48, 384, 128}, {1, 5, 50304, 64}}) {
    for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
      const Problem p = SingleEntries(
          s, 1, 2, Uniform(DType::kBF16, {s.vocab, s.dim}, precision.fp8 ? -1 : -15, 1));
      Both([&](Side side, Queue& queue) {
        HeadLoss(Args(p, precision, side), p.losses.on(side), queue);
      });
      ExpectEachClose(p.losses, 2e-6, 1e-5, Text(s, precision));
    }
  }
}

TEST_F(HeadTest, OtherCap) {
  const Shape s = {1, 48, 384, 64};
  const Problem p = SingleEntries(s, 1, 2, Uniform(DType::kBF16, {s.vocab, s.dim}, -10, 10));
  Both([&](Side side, Queue& queue) {
    HeadArgs args = Args(p, {}, side);
    args.softcap = 15;
    args.softcap_temperature = 15;
    HeadLossGrad(args, p.losses.on(side), p.dx.on(side), p.dw.on(side), queue);
  });
  ExpectEachClose(p.losses, 2e-6, 1e-5, "losses");
  ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 1e-6, "dw");
}

TEST_F(HeadTest, Logits) {
  for (const int64_t n : {1, 5, 48}) {
    for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
      const Shape s = {1, n, 384, 64};
      const Problem p = SingleEntries(
          s, 1, 2, Uniform(DType::kBF16, {s.vocab, s.dim}, precision.fp8 ? -1 : -50, 1));
      const Twin z = Output(DType::kF32, {1, n, s.vocab});
      Both([&](Side side, Queue& queue) {
        HeadArgs args = Args(p, precision, side);
        args.targets = Tensor();
        HeadLogits(args, z.on(side), queue);
      });
      ExpectEachClose(z, 3e-6, 1e-6, Text(s, precision));
    }
  }
}

TEST_F(HeadTest, Repeats) {
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    const Problem p = Random({2, 208, 384, 768}, 1);
    const std::vector<float> zeros(p.dw.cuda.size());
    ExpectRepeats(
        [&](Queue& queue) {
          queue.Upload(zeros.data(), p.dw.cuda);
          HeadLossGrad(Args(p, precision, Side::kCuda), p.losses.cuda, p.dx.cuda, p.dw.cuda, queue);
        },
        {p.losses.cuda, p.dx.cuda, p.dw.cuda});
  }
}

// A pass of three slots gives the bits of three passes of one, with a leaf per slot and with one
// leaf for all, to which the slots add in turn.
TEST_F(HeadTest, SlotsAreIndependentBitwise) {
  const Shape s = {3, 208, 384, 256};
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    for (const int64_t leaves : {1, 3}) {
      const Problem p = Random(s, leaves);
      const std::vector<float> zeros(p.dw.cuda.size());
      Queue& queue = deterministic();
      const auto run = [&](int64_t begin, int64_t count) {
        HeadLossGrad(Args(p, precision, Side::kCuda, begin, count),
                     p.losses.cuda.Slice(begin, count), p.dx.cuda.Slice(begin, count),
                     leaves == 1 ? p.dw.cuda : p.dw.cuda.Slice(begin, count), queue);
      };
      run(0, 3);
      queue.Synchronize();
      const std::vector<uint8_t> together = Results(p);
      queue.Upload(zeros.data(), p.dw.cuda);
      for (const int64_t slot : {0, 1, 2}) run(slot, 1);
      queue.Synchronize();
      EXPECT_EQ(Results(p) == together, true) << precision.fp8 << ", leaves " << leaves;
    }
  }
}

TEST_F(HeadTest, NaNAndBadTargetsReachTheirOwnLossAlone) {
  const Shape s = {1, 16, 384, 64};
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    const Problem p = Random(s, 1);
    std::vector<double> x = OnHost(p.x.cuda), targets = OnHost(p.targets.cuda);
    x[3 * s.dim + 5] = NAN;
    targets[7] = static_cast<double>(s.vocab);
    targets[8] = -1;
    Set(p.x.cuda, x);
    Set(p.targets.cuda, targets);
    const auto expect = [&](const char* what) {
      const std::vector<double> losses = OnHost(p.losses.cuda);
      for (int t = 0; t < 16; ++t) {
        EXPECT_EQ(std::isnan(losses[t]), t == 3 || t == 7 || t == 8) << what << " " << t;
      }
    };
    HeadLossGrad(Args(p, precision, Side::kCuda), p.losses.cuda, p.dx.cuda, p.dw.cuda, cuda());
    cuda().Synchronize();
    expect("with gradient, row");
    HeadLoss(Args(p, precision, Side::kCuda), p.losses.cuda, cuda());
    cuda().Synchronize();
    expect("losses only, row");
  }
}

// More rows than multiprocessors, so that blocks go from row to row; the CPU as the oracle.
TEST_F(HeadTest, ManyRows) {
  const Shape s = {1, 2048, 1024, 128};
  for (const HeadPrecision& precision : {HeadPrecision(), kFp8}) {
    const Problem p = Random(s, 1);
    Grad(p, precision);
    ExpectClose(p.losses, 1e-5, 0.125, Text(s, precision));
    ExpectNormClose(p.dx, precision.fp8 ? 0.05 : 1.0 / 128, Text(s, precision));
    ExpectNormClose(p.dw, precision.fp8 ? 0.05 : 1.0 / 128, Text(s, precision));
  }
}

}  // namespace
}  // namespace kernels
