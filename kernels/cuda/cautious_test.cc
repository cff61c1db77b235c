// Cautious decay, weights that keep their lower halves, and momentum of a rounded gradient on CUDA,
// against the CPU's.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/optimizer.h"

namespace kernels {
namespace {

// Two values that f32 cannot tell apart may round to neighbours in bf16.
constexpr double kNeighbour = 2 * kBf16Roundoff;

class CautiousTest : public CudaTest {
 protected:
  static AdamArgs Adam(Tensor p, Tensor g, Tensor m, Tensor v, Tensor rates, Tensor guard = {}) {
    AdamArgs args{.p = p, .g = g, .m = m, .v = v, .rates = rates, .guard = guard};
    args.beta1 = 0.75f;
    args.beta2 = 0.95f;
    args.cautious = true;
    return args;
  }

  // Random u16, each two the halves of an i32.
  Twin Mantissas(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (int64_t dim : dims) n *= dim;
    const Twin bits = Ints({(n + 1) / 2}, INT32_MIN, INT32_MAX);
    return {Tensor(bits.cpu.data(), DType::kU16, dims, DeviceKind::kCpu),
            Tensor(bits.cuda.data(), DType::kU16, dims, DeviceKind::kCuda)};
  }

  std::vector<uint32_t> Words(const Tensor& p, const Tensor& mantissa) {
    const std::vector<uint8_t> upper = Bytes(p), lower = Bytes(mantissa);
    std::vector<uint32_t> words(p.size());
    for (size_t i = 0; i < words.size(); ++i) {
      uint16_t halves[2];
      std::memcpy(&halves[0], lower.data() + 2 * i, 2);
      std::memcpy(&halves[1], upper.data() + 2 * i, 2);
      words[i] = uint32_t{halves[1]} << 16 | halves[0];
    }
    return words;
  }
};

// The same f32 operations in the same order; a CPU without fused multiply-add rounds products too.
// The update reaches 1, so p differs by a few 2^-24; and where f32 cannot tell on which side of
// zero an update is, it is too small to matter.
TEST_F(CautiousTest, Adam) {
  for (DType weights : {DType::kF32, DType::kBF16}) {
    for (DType moments : {DType::kF32, DType::kBF16}) {
      for (int64_t n : {1, 3, 8, 1003, 1 << 18}) {
        const Twin p = Normal(weights, {n}), g = Normal(DType::kF32, {n});
        const Twin m = Normal(moments, {n}, 0.1), v = Uniform(moments, {n}, 0.0, 1.0);
        const Twin rates = Of(DType::kF32, {3}, {0.6, 0.1, 1e-10});
        Both([&](Side side, Queue& queue) {
          AdamUpdate(Adam(p.on(side), g.on(side), m.on(side), v.on(side), rates.on(side)), queue);
        });
        ExpectClose(p, weights == DType::kF32 ? 2e-6 : kNeighbour, 0, "p");
        ExpectClose(m, moments == DType::kF32 ? 1e-6 : kNeighbour, 0, "m");
        ExpectClose(v, moments == DType::kF32 ? 1e-6 : kNeighbour, 0, "v");
      }
    }
  }
}

TEST_F(CautiousTest, UO_30_AdamGolden) {
  const double step_size = 0.008 * std::sqrt(1 - 0.95) / (1 - 0.5);
  const Twin p = Of(DType::kBF16, {2}, {0.5, -0.5}), g = Of(DType::kF32, {2}, {0.1, 0.1});
  const Twin m = Zeros(DType::kF32, {2}), v = Zeros(DType::kF32, {2});
  const Twin rates = Of(DType::kF32, {3}, {step_size, 4.8e-5, 1e-10});
  AdamArgs args = Adam(p.cuda, g.cuda, m.cuda, v.cuda, rates.cuda);
  args.beta1 = 0.5f;
  AdamUpdate(args, cuda());
  cuda().Synchronize();
  EXPECT_EQ(OnHost(p.cuda), (std::vector<double>{0.4921875, -0.5078125}));
}

TEST_F(CautiousTest, UO_31_AdamGolden) {
  const double step_size = 0.6 * std::sqrt(1 - 0.95) / (1 - 0.75);
  const Twin p = Of(DType::kBF16, {1}, {0.5}), g = Of(DType::kF32, {1}, {0.1});
  const Twin m = Zeros(DType::kF32, {1}), v = Zeros(DType::kF32, {1});
  const Twin rates = Of(DType::kF32, {3}, {step_size, 9e-3, 1e-10});
  AdamUpdate(Adam(p.cuda, g.cuda, m.cuda, v.cuda, rates.cuda), cuda());
  cuda().Synchronize();
  EXPECT_NEAR(OnHost(p.cuda)[0], -0.10449219, 5e-9);
}

TEST_F(CautiousTest, UO_32_NesterovGolden) {
  const std::vector<double> gradients = {1, 2, -1};
  const std::vector<double> want_m = {0.15, 0.4275, 0.213375};
  const std::vector<double> want_u = {0.2775, 0.663375, 0.03136875};
  const Twin mu = Of(DType::kF32, {1}, {0.85});
  const Twin m = Zeros(DType::kF32, {1}), u = Output(DType::kBF16, {1});
  for (int i = 0; i < 3; ++i) {
    const Twin g = Of(DType::kF32, {1}, {gradients[i]});
    MomentumUpdate({.g = g.cuda, .m = m.cuda, .mu = mu.cuda, .u = u.cuda, .gradient = DType::kBF16},
                   cuda());
    cuda().Synchronize();
    EXPECT_NEAR(OnHost(m.cuda)[0], want_m[i], 2e-7) << i;
    EXPECT_NEAR(OnHost(u.cuda)[0], want_u[i], want_u[i] * kBf16Roundoff + 2e-7) << i;
  }
}

// 1e-6: rounding of g itself moves an f32 m by up to 0.05 * 2^-8 of it, far more.
TEST_F(CautiousTest, MomentumRoundsTheGradientAsTold) {
  for (DType moment : {DType::kF32, DType::kBF16}) {
    for (DType gradient : {DType::kF32, DType::kBF16}) {
      for (int64_t n : {1, 7, 1003, 1 << 18}) {
        const Twin g = Normal(DType::kF32, {n}), m = Normal(moment, {n}, 0.1);
        const Twin mu = Of(DType::kF32, {1}, {0.95}), u = Output(DType::kBF16, {n});
        Both([&](Side side, Queue& queue) {
          MomentumUpdate({.g = g.on(side),
                          .m = m.on(side),
                          .mu = mu.on(side),
                          .u = u.on(side),
                          .gradient = gradient},
                         queue);
        });
        ExpectClose(m, moment == DType::kF32 ? 1e-6 : kNeighbour, 0, "m");
        ExpectClose(u, kNeighbour, 0, "u");
      }
    }
  }
}

// Three matrices, and as they lie one element further, where nothing is aligned; a step of each
// kind.
TEST_F(CautiousTest, MatrixUpdateHasTheCpusBits) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {6, 12}, {130, 131}, {768, 768}}) {
    for (int64_t shift : {0, 1}) {
      const int64_t n = 3 * rows * cols;
      const auto cut = [&](const Twin& t) {
        const auto one = [&](const Tensor& x) {
          return x.Slice(shift, n).Reshape({3, rows, cols});
        };
        return Twin{one(t.cpu), one(t.cuda)};
      };
      const Twin p = Normal(DType::kBF16, {n + shift}), mantissa = Mantissas({n + shift});
      const Twin all_o = Normal(DType::kBF16, {n + shift}, 0.1);
      const Twin w = cut(p), lower = cut(mantissa), o = cut(all_o);
      const Twin lr = Of(DType::kF32, {3}, {0.023, 0.046, 0.092});
      const Twin decay = Of(DType::kF32, {3}, {0.0276, 0.3, 0});
      for (bool cautious : {true, false}) {
        Both([&](Side side, Queue& queue) {
          SplitMatrixUpdate({.p = w.on(side),
                             .mantissa = lower.on(side),
                             .o = o.on(side),
                             .lr = lr.on(side),
                             .decay = decay.on(side),
                             .cautious = cautious},
                            queue);
        });
        ExpectSameBits(p, "p");
        ExpectSameBits(mantissa, "mantissa");
      }
    }
  }
}

TEST_F(CautiousTest, UO_36_MantissaGolden) {
  const Twin p = Of(DType::kBF16, {1, 1, 3}, {1, 1, 1}),
             o = Of(DType::kBF16, {1, 1, 3}, {0.5, -0.5, 0});
  const Twin packed = Ints({2}, 0, 1);  // 0, 0; and what the third weight needs:
  const Twin third = Ints({1}, 0x1234, 0x1235);
  const Twin lr = Of(DType::kF32, {1}, {0.023}), decay = Of(DType::kF32, {1}, {0.0276});
  const auto update = [&](int64_t begin, int64_t n, Tensor mantissa) {
    const auto cut = [&](const Tensor& t) {
      return t.Reshape({-1}).Slice(begin, n).Reshape({1, 1, n});
    };
    const Tensor lower(mantissa.data(), DType::kU16, {1, 1, n}, DeviceKind::kCuda);
    SplitMatrixUpdate({.p = cut(p.cuda),
                       .mantissa = lower,
                       .o = cut(o.cuda),
                       .lr = lr.cuda,
                       .decay = decay.cuda,
                       .cautious = true},
                      cuda());
    cuda().Synchronize();
    return Words(cut(p.cuda), lower);
  };
  EXPECT_EQ(update(0, 2, packed.cuda), (std::vector<uint32_t>{0x3F7CE4BC, 0x3F8178D5}));
  EXPECT_EQ(update(2, 1, third.cuda), (std::vector<uint32_t>{0x3F7FFAC8}));
}

// Plain decay, with the factor 1 - weight_decay.
TEST_F(CautiousTest, T2_28_SplitWeightsWithoutCaution) {
  struct Case {
    uint32_t before;
    double weight_decay, lr, update;
    uint32_t after;
  };
  for (const Case& c : {Case{0x3C800000, 0.0005, 0.05, 0, 0x3C7FDF3B},
                        {0x3C800000, 0.00025, 0.025, 0, 0x3C7FEF9E},
                        {0xBC800000, 0.00025, 0.025, 0, 0xBC7FEF9E},
                        {0x3C800000, 0.00025, 0.025, 0.03125, 0x3C7322D1},
                        {0x00000000, 0.00025, 0.025, 1, 0xBCCCCCCD},
                        {0x3CDE1234, 0.0005, 0.05, -0.0078125, 0x3CE128FA}}) {
    const auto lower = static_cast<int32_t>(c.before & 0xffffu);
    const auto upper = static_cast<int32_t>(c.before >> 16);
    const Twin halves[] = {Ints({1}, upper, upper + 1), Ints({1}, lower, lower + 1)};
    const Tensor p(halves[0].cuda.data(), DType::kBF16, {1, 1, 1}, DeviceKind::kCuda);
    const Tensor mantissa(halves[1].cuda.data(), DType::kU16, {1, 1, 1}, DeviceKind::kCuda);
    SplitMatrixUpdate({.p = p,
                       .mantissa = mantissa,
                       .o = Of(DType::kBF16, {1, 1, 1}, {c.update}).cuda,
                       .lr = Of(DType::kF32, {1}, {c.lr}).cuda,
                       .decay = Of(DType::kF32, {1}, {1 - c.weight_decay}).cuda},
                      cuda());
    cuda().Synchronize();
    EXPECT_EQ(Words(p, mantissa), std::vector<uint32_t>{c.after});
  }
}

TEST_F(CautiousTest, UO_37_ZeroGradientDecaysMatricesOnly) {
  const std::vector<double> start = {0.5, -0.5, 0.5, -0.5}, zero = {0.0, 0.0, -0.0, -0.0};
  const Twin p = Of(DType::kBF16, {1, 2, 2}, start), o = Of(DType::kBF16, {1, 2, 2}, zero);
  const Twin packed = Ints({2}, 0, 1), lr = Of(DType::kF32, {1}, {0.25});
  const Tensor mantissa(packed.cuda.data(), DType::kU16, {1, 2, 2}, DeviceKind::kCuda);
  const Twin decay = Of(DType::kF32, {1}, {0.5});
  SplitMatrixUpdate({.p = p.cuda,
                     .mantissa = mantissa,
                     .o = o.cuda,
                     .lr = lr.cuda,
                     .decay = decay.cuda,
                     .cautious = true},
                    cuda());
  const Twin q = Of(DType::kBF16, {4}, start), g = Of(DType::kF32, {4}, zero);
  const Twin m = Zeros(DType::kF32, {4}), v = Zeros(DType::kF32, {4});
  const Twin rates = Of(DType::kF32, {3}, {0.6, 0.5, 1e-10});
  AdamUpdate(Adam(q.cuda, g.cuda, m.cuda, v.cuda, rates.cuda), cuda());
  cuda().Synchronize();
  EXPECT_EQ(OnHost(p.cuda), (std::vector<double>{0.4375, -0.4375, 0.4375, -0.4375}));
  EXPECT_EQ(OnHost(q.cuda), start);
}

// One call on n elements against calls on uneven pieces, which start at any alignment, bitwise.
TEST_F(CautiousTest, BitsDoNotDependOnCuts) {
  const int64_t n = 40003;
  const Twin g = Normal(DType::kF32, {n}), o = Normal(DType::kBF16, {n}, 0.1);
  const Twin rates = Of(DType::kF32, {3}, {0.6, 0.1, 1e-10}), mu = Of(DType::kF32, {1}, {0.9});
  const Twin rate = Of(DType::kF32, {1}, {0.03});
  const std::vector<double> values = OnHost(g.cuda);
  std::vector<std::vector<uint8_t>> want;
  for (const std::vector<int64_t>& pieces :
       std::vector<std::vector<int64_t>>{{n}, {1, 7, 16384, 3, 23605, 3}}) {
    const Tensor p = Of(DType::kBF16, {n}, values).cuda, w = Of(DType::kBF16, {n}, values).cuda;
    const Tensor m = Zeros(DType::kF32, {n}).cuda, v = Zeros(DType::kF32, {n}).cuda;
    const Tensor k = Zeros(DType::kF32, {n}).cuda, u = Output(DType::kBF16, {n}).cuda;
    const Tensor mantissa(Ints({(n + 1) / 2}, 0x12345678, 0x12345679).cuda.data(), DType::kU16, {n},
                          DeviceKind::kCuda);
    int64_t begin = 0;
    for (int64_t size : pieces) {
      const auto cut = [&](const Tensor& t) { return t.Slice(begin, size); };
      const auto matrix = [&](const Tensor& t) { return cut(t).Reshape({1, 1, size}); };
      AdamUpdate(Adam(cut(p), cut(g.cuda), cut(m), cut(v), rates.cuda), cuda());
      MomentumUpdate(
          {.g = cut(g.cuda), .m = cut(k), .mu = mu.cuda, .u = cut(u), .gradient = DType::kBF16},
          cuda());
      SplitMatrixUpdate({.p = matrix(w),
                         .mantissa = matrix(mantissa),
                         .o = matrix(o.cuda),
                         .lr = rate.cuda,
                         .decay = rate.cuda,
                         .cautious = true},
                        cuda());
      begin += size;
    }
    ASSERT_EQ(begin, n);
    cuda().Synchronize();
    std::vector<std::vector<uint8_t>> got;
    for (const Tensor& t : {p, m, v, k, u, w, mantissa}) got.push_back(Bytes(t));
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
}

TEST_F(CautiousTest, ZeroGuardChangesNothing) {
  const int64_t n = 2 * 30 * 35;
  const Twin g = Normal(DType::kF32, {n}), o = Normal(DType::kBF16, {2, 30, 35});
  for (const Twin* t : {&g, &o}) {
    std::vector<double> values = OnHost(t->cuda);
    values[n / 2] = NAN;
    Set(t->cuda, values);
  }
  const Twin p = Normal(DType::kBF16, {n}), m = Normal(DType::kF32, {n});
  const Twin v = Uniform(DType::kF32, {n}, 0.0, 1.0), w = Normal(DType::kBF16, {2, 30, 35});
  const Twin mantissa = Mantissas({2, 30, 35}), rate = Of(DType::kF32, {2}, {0.03, 0.02});
  const Twin rates = Of(DType::kF32, {3}, {0.03, 0.02, 1e-10});
  const auto state = [&] {
    std::vector<std::vector<uint8_t>> all;
    for (const Twin* t : {&p, &m, &v, &w, &mantissa}) all.push_back(Bytes(t->cuda));
    return all;
  };
  const auto step = [&](int32_t on) {
    const Tensor guard = Ints({1}, on, on + 1).cuda;
    AdamUpdate(Adam(p.cuda, g.cuda, m.cuda, v.cuda, rates.cuda, guard), cuda());
    SplitMatrixUpdate({.p = w.cuda,
                       .mantissa = mantissa.cuda,
                       .o = o.cuda,
                       .lr = rate.cuda,
                       .decay = rate.cuda,
                       .guard = guard,
                       .cautious = true},
                      cuda());
    cuda().Synchronize();
  };
  const auto before = state();
  step(0);
  EXPECT_EQ(state(), before);
  step(1);
  const auto after = state();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
}

}  // namespace
}  // namespace kernels
