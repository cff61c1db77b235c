#include "kernels/ops/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::WithinBf16Steps;

HostTensor Filled(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  tensor.Set(values);
  return tensor;
}

double StepSize(double lr, double beta1, double beta2, int t) {
  return lr * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
}

struct Adam {
  double beta1 = 0.8, beta2 = 0.95, eps = 1e-8, lr = 0.04;
};

AdamArgs Args(const Adam& a, Tensor p, Tensor g, Tensor m, Tensor v, Tensor rates) {
  return {.p = p,
          .g = g,
          .m = m,
          .v = v,
          .rates = rates,
          .beta1 = static_cast<float>(a.beta1),
          .beta2 = static_cast<float>(a.beta2)};
}

std::vector<double> RunAdam(const Adam& a, DType moments, const std::vector<double>& gradients) {
  const auto queue = MakeCpuQueue(1);
  const HostTensor p = Filled(DType::kF32, {1});
  const HostTensor m(moments, {1}), v(moments, {1});
  std::vector<double> path;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const HostTensor g = Filled(DType::kF32, {gradients[i]});
    const HostTensor rates =
        Filled(DType::kF32, {StepSize(a.lr, a.beta1, a.beta2, i + 1), 1, a.eps});
    AdamUpdate(Args(a, p, g, m, v, rates), *queue);
    queue->Synchronize();
    path.push_back(p.ToDouble()[0]);
  }
  return path;
}

// Case O11: updates 1-3; with f32 moments only f32 rounding remains (p near 1: 2^-24 each).
TEST(Optimizer, T1_50_AdamGolden) {
  const std::vector<double> a = RunAdam({}, DType::kF32, {3, -1, 0.5});
  const std::vector<double> want_a = {0.960000001, 0.945941755, 0.931251416};
  const std::vector<double> b = RunAdam({.beta1 = 0.65}, DType::kF32, {3, -1, 0.5});
  const std::vector<double> want_b = {0.960000001, 0.949593247, 0.937662721};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(a[i], want_a[i], 5e-7) << "update " << i + 1;
    EXPECT_NEAR(b[i], want_b[i], 5e-7) << "update " << i + 1;
  }
}

TEST(Optimizer, T1_50_SecondUpdateAfterAZeroGradient) {
  const std::vector<double> a = RunAdam({}, DType::kF32, {0, 1});
  EXPECT_EQ(a[0], 1.0);
  EXPECT_NEAR(1 - a[1], 0.775791 * 0.04, 5e-7);
  const std::vector<double> b = RunAdam({.beta1 = 0.65}, DType::kF32, {0, 1});
  EXPECT_NEAR(1 - b[1], 0.846319 * 0.04, 5e-7);
}

// Case O11: gradients as small as eps tell apart eps inside and outside of the correction.
TEST(Optimizer, O11_EpsilonIsOutsideOfTheBiasCorrection) {
  const Adam a;
  const std::vector<double> gradients = {2e-8, -1e-8, 3e-8};
  const std::vector<double> got = RunAdam(a, DType::kF32, gradients);
  double p = 1, m = 0, v = 0;
  for (int t = 1; t <= 3; ++t) {
    const double g = gradients[t - 1];
    m = a.beta1 * m + (1 - a.beta1) * g;
    v = a.beta2 * v + (1 - a.beta2) * g * g;
    p -= StepSize(a.lr, a.beta1, a.beta2, t) * m / (std::sqrt(v) + a.eps);
    EXPECT_NEAR(got[t - 1], p, 5e-7) << "update " << t;
  }
}

// bf16 p and moments against the float64 rule on the same stored values: f32 inside, and rounded
// once each.
TEST(Optimizer, AdamInBf16MatchesFloat64) {
  const Adam a;
  const auto queue = MakeCpuQueue(2);
  const int64_t n = 1003;
  const HostTensor p = RandomTensor(DType::kBF16, {n}, 1);
  const HostTensor m(DType::kBF16, {n}), v(DType::kBF16, {n});
  for (int t = 1; t <= 3; ++t) {
    const HostTensor g = RandomTensor(DType::kF32, {n}, 10 + t);
    const double step_size = StepSize(a.lr, a.beta1, a.beta2, t), decay = 0.99;
    const HostTensor rates = Filled(DType::kF32, {step_size, decay, a.eps});
    const std::vector<double> p0 = p.ToDouble(), m0 = m.ToDouble(), v0 = v.ToDouble();
    AdamUpdate(Args(a, p, g, m, v, rates), *queue);
    queue->Synchronize();
    const std::vector<double> p1 = p.ToDouble(), m1 = m.ToDouble(), v1 = v.ToDouble();
    for (int64_t i = 0; i < n; ++i) {
      const double grad = RoundToBF16(g.get().f32()[i]);
      const double mi = a.beta1 * m0[i] + (1 - a.beta1) * grad;
      const double vi = a.beta2 * v0[i] + (1 - a.beta2) * grad * grad;
      const double pi = p0[i] * decay - step_size * mi / (std::sqrt(vi) + a.eps);
      // The sums may cancel: f32 rounding of their terms comes on top.
      ASSERT_TRUE(WithinBf16Steps(m1[i], mi, 0.5, 1e-6));
      ASSERT_TRUE(WithinBf16Steps(v1[i], vi, 0.5, 1e-6 * vi));
      ASSERT_TRUE(WithinBf16Steps(p1[i], pi, 0.5, 1e-6));
    }
  }
}

TEST(Optimizer, T1_51_NesterovGolden) {
  const auto queue = MakeCpuQueue(1);
  for (double mu : {0.85, 0.95}) {
    const std::vector<double> want = mu == 0.85 ? std::vector<double>{0.277500, 0.663375, 0.031369}
                                                : std::vector<double>{0.0975, 0.240125, 0.035619};
    const std::vector<double> gradients = {1, 2, -1};
    const HostTensor m(DType::kF32, {1}), u(DType::kBF16, {1});
    for (int i = 0; i < 3; ++i) {
      MomentumUpdate({.g = Filled(DType::kF32, {gradients[i]}),
                      .m = m,
                      .mu = Filled(DType::kF32, {mu}),
                      .u = u,
                      .gradient = m.get().dtype()},
                     *queue);
      queue->Synchronize();
      // u is rounded once to bf16.
      EXPECT_TRUE(WithinBf16Steps(u.ToDouble()[0], want[i], 0.5, 1e-6)) << mu << " " << i;
    }
  }
}

// One call on n elements against calls on uneven pieces, bitwise.
TEST(Optimizer, ElementwiseBitsDoNotDependOnCuts) {
  const int64_t n = 40003;
  const HostTensor g = RandomTensor(DType::kF32, {n}, 1);
  const HostTensor rates = Filled(DType::kF32, {0.03, 0.99, 1e-8});
  const HostTensor mu = Filled(DType::kF32, {0.9});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto run = [&](int threads, const std::vector<int64_t>& pieces) {
      const auto queue = MakeCpuQueue(threads);
      const HostTensor p = RandomTensor(dtype, {n}, 2), m = RandomTensor(dtype, {n}, 3, 0.1);
      const HostTensor v(dtype, {n}), k = RandomTensor(dtype, {n}, 4), u(DType::kBF16, {n});
      int64_t begin = 0;
      for (int64_t size : pieces) {
        const auto cut = [&](const HostTensor& t) { return t.get().Slice(begin, size); };
        AdamUpdate(Args({}, cut(p), cut(g), cut(m), cut(v), rates), *queue);
        MomentumUpdate(
            {.g = cut(g), .m = cut(k), .mu = mu, .u = cut(u), .gradient = k.get().dtype()}, *queue);
        begin += size;
      }
      CHECK_EQ(begin, n);
      queue->Synchronize();
      std::vector<std::vector<double>> all;
      for (const HostTensor* t : {&p, &m, &v, &k, &u}) all.push_back(t->ToDouble());
      return all;
    };
    const auto whole = run(1, {n});
    EXPECT_EQ(run(2, {n}), whole) << dtype;
    EXPECT_EQ(run(3, {1, 7, 16384, 3, 23605, 3}), whole) << dtype;
  }
}

TEST(Optimizer, NormalizeFrobeniusMatchesFloat64) {
  for (const auto& [rows, cols] : {std::pair{1, 12}, {6, 12}, {5, 7}, {96, 384}, {200, 201}}) {
    const HostTensor u = RandomTensor(DType::kBF16, {3, rows, cols}, 1);
    const std::vector<double> in = u.ToDouble();
    const HostTensor x1(DType::kBF16, {3, rows, cols});
    NormalizeFrobenius(u, 1.0f, 1e-7f, x1, *MakeCpuQueue(1));
    NormalizeFrobenius(u, 1.0f, 1e-7f, u, *MakeCpuQueue(3));  // in place
    EXPECT_EQ(u.ToDouble(), x1.ToDouble());
    const std::vector<double> got = x1.ToDouble();
    const int64_t size = rows * cols;
    for (int64_t b = 0; b < 3; ++b) {
      double squares = 0;
      for (int64_t i = b * size; i < (b + 1) * size; ++i) squares += in[i] * in[i];
      for (int64_t i = b * size; i < (b + 1) * size; ++i) {
        const double want = in[i] / (std::sqrt(squares) + 1e-7);
        // One rounding to bf16, and the f32 norm.
        ASSERT_TRUE(WithinBf16Steps(got[i], want, 0.5, 1e-5 * std::fabs(want)));
      }
    }
  }
}

TEST(Optimizer, T1_36_ZeroMatrixStaysZero) {
  HostTensor x = RandomTensor(DType::kBF16, {2, 6, 12}, 1);
  NormalizeFrobenius(HostTensor(DType::kBF16, {2, 6, 12}), 1.0f, 1e-7f, x, *MakeCpuQueue(1));
  for (double value : x.ToDouble()) EXPECT_EQ(value, 0.0);
}

// One step of NorMuon's normalisation of one matrix in float64.
std::vector<double> SecondMomentStep(const std::vector<double>& o, int64_t rows, int64_t cols,
                                     bool per_row, double beta2, double* w) {
  std::vector<double> p = o;
  const int64_t count = per_row ? rows : cols, averaged = per_row ? cols : rows;
  std::vector<double> mean(count, 0.0);
  double before = 0, after = 0;
  for (int64_t i = 0; i < rows * cols; ++i) {
    mean[per_row ? i / cols : i % cols] += o[i] * o[i] / averaged;
    before += o[i] * o[i];
  }
  for (int64_t k = 0; k < count; ++k) w[k] += (1 - beta2) * (mean[k] - w[k]);
  for (int64_t i = 0; i < rows * cols; ++i) {
    p[i] /= std::sqrt(std::max(w[per_row ? i / cols : i % cols], 1e-10));
    after += p[i] * p[i];
  }
  for (double& x : p) x *= std::sqrt(before) / std::max(std::sqrt(after), 1e-10);
  return p;
}

TEST(Optimizer, T1_37_SecondMomentGolden) {
  const HostTensor w(DType::kF32, {1, 3}), o(DType::kBF16, {1, 2, 3}), p(DType::kBF16, {1, 2, 3});
  const auto queue = MakeCpuQueue(1);
  const std::vector<double> updates[] = {{3, 0, 1, 4, 2, -1}, {1, 2, 0, 1, -2, 2}};
  const std::vector<double> moments[] = {{0.625, 0.1, 0.05}, {0.64375, 0.295, 0.1475}};
  const std::vector<double> want[] = {{1.928730, 0, 2.273030, 2.571640, 3.214550, -2.273030},
                                      {0.615830, 1.819444, 0, 0.615830, -1.819444, 2.573082}};
  for (int step = 0; step < 2; ++step) {
    o.Set(updates[step]);
    NormalizeBySecondMoment({.o = o, .w = w, .p = p, .beta2 = 0.95f}, *queue);
    queue->Synchronize();
    double norm = 0, norm_before = 0;
    for (int j = 0; j < 3; ++j) EXPECT_NEAR(w.ToDouble()[j], moments[step][j], 1e-6);
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(WithinBf16Steps(p.ToDouble()[i], want[step][i], 0.5, 1e-6));
      norm += std::pow(p.ToDouble()[i], 2);
      norm_before += std::pow(updates[step][i], 2);
    }
    EXPECT_NEAR(std::sqrt(norm), std::sqrt(norm_before), 0.01);
  }
}

// p: one rounding to bf16 and sums in f32. w: f32, or one rounding to bf16 a step.
TEST(Optimizer, SecondMomentMatchesFloat64) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (bool per_row : {false, true}) {
      for (const auto& [rows, cols] :
           {std::pair{1, 12}, {6, 12}, {5, 7}, {65, 33}, {130, 200}, {200, 64}}) {
        const int64_t count = per_row ? rows : cols, size = rows * cols;
        const HostTensor w(dtype, {3, count}), w3(dtype, {3, count});
        const HostTensor p(DType::kBF16, {3, rows, cols});
        for (uint32_t step = 1; step <= 3; ++step) {
          const HostTensor o = RandomTensor(DType::kBF16, {3, rows, cols}, step, 0.04);
          const std::vector<double> in = o.ToDouble();
          std::vector<double> moments = w.ToDouble();
          NormalizeBySecondMoment({.o = o, .w = w, .p = p, .beta2 = 0.95f, .per_row = per_row},
                                  *MakeCpuQueue(1));
          // In place, and on more threads.
          NormalizeBySecondMoment({.o = o, .w = w3, .p = o, .beta2 = 0.95f, .per_row = per_row},
                                  *MakeCpuQueue(3));
          EXPECT_EQ(o.ToDouble(), p.ToDouble());
          EXPECT_EQ(w3.ToDouble(), w.ToDouble());
          const std::vector<double> got = p.ToDouble();
          for (int64_t b = 0; b < 3; ++b) {
            const std::vector<double> want =
                SecondMomentStep({in.begin() + b * size, in.begin() + (b + 1) * size}, rows, cols,
                                 per_row, 0.95, moments.data() + b * count);
            for (int64_t i = 0; i < size; ++i) {
              ASSERT_TRUE(WithinBf16Steps(got[b * size + i], want[i], 0.5,
                                          1e-5 * std::fabs(want[i]) + 1e-9));
            }
          }
          for (int64_t i = 0; i < 3 * count; ++i) {
            const double steps = dtype == DType::kF32 ? 0 : 0.5;
            ASSERT_TRUE(WithinBf16Steps(w.ToDouble()[i], moments[i], steps, 1e-5 * moments[i]));
          }
        }
      }
    }
  }
}

// The columns of the first update have the same norm; a batch is as each matrix alone, bit by bit.
TEST(Optimizer, T1_37_FirstStepEqualisesColumns) {
  const int64_t rows = 70, cols = 24;
  const HostTensor o = RandomTensor(DType::kBF16, {2, rows, cols}, 1), w(DType::kF32, {2, cols});
  std::vector<double> scaled = o.ToDouble();
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= 1 + static_cast<double>(i % cols);
  o.Set(scaled);
  const HostTensor p(DType::kBF16, {2, rows, cols}), alone(DType::kBF16, {1, rows, cols});
  const auto queue = MakeCpuQueue(2);
  NormalizeBySecondMoment({.o = o, .w = w, .p = p, .beta2 = 0.95f}, *queue);
  const std::vector<double> all = p.ToDouble();
  for (int64_t b = 0; b < 2; ++b) {
    const HostTensor own(DType::kF32, {1, cols});
    NormalizeBySecondMoment({.o = o.get().Slice(b, 1), .w = own, .p = alone, .beta2 = 0.95f},
                            *queue);
    EXPECT_EQ(alone.ToDouble(), std::vector<double>(all.begin() + b * rows * cols,
                                                    all.begin() + (b + 1) * rows * cols));
    std::vector<double> squares(cols, 0.0);
    for (int64_t i = 0; i < rows * cols; ++i) {
      squares[i % cols] += std::pow(all[b * rows * cols + i], 2);
    }
    // Of 70 entries with a rounding of 2^-9 each.
    for (double square : squares) EXPECT_NEAR(square / squares[0], 1, 0.004);
  }
}

TEST(Optimizer, T1_36_SecondMomentOfZero) {
  const HostTensor o(DType::kBF16, {2, 6, 12}), w(DType::kF32, {2, 12});
  const HostTensor p = RandomTensor(DType::kBF16, {2, 6, 12}, 1);
  NormalizeBySecondMoment({.o = o, .w = w, .p = p, .beta2 = 0.95f}, *MakeCpuQueue(1));
  for (double value : p.ToDouble()) EXPECT_EQ(value, 0.0);
  for (double value : w.ToDouble()) EXPECT_EQ(value, 0.0);
}

// Weights in halves are f32 weights: the same bits for gradients that bf16 holds, for any cut.
TEST(Optimizer, AdamOnHalvesIsAdamOnF32) {
  for (bool cautious : {false, true}) {
    for (DType moments : {DType::kF32, DType::kBF16}) {
      const int64_t n = 1003;
      const HostTensor whole = RandomTensor(DType::kF32, {n}, 1);
      const HostTensor upper(DType::kBF16, {n}), lower(DType::kU16, {n});
      const auto bits_of = [&](int64_t i) { return std::bit_cast<uint32_t>(whole.get().f32()[i]); };
      for (int64_t i = 0; i < n; ++i) {
        upper.get().bf16()[i].bits = static_cast<uint16_t>(bits_of(i) >> 16);
        lower.get().u16()[i] = static_cast<uint16_t>(bits_of(i));
      }
      const HostTensor m(moments, {n}), v(moments, {n}), m2(moments, {n}), v2(moments, {n});
      HostTensor rates(DType::kF32, {3});
      rates.Set({0.03, cautious ? 0.01 : 0.99, 1e-8});
      for (uint32_t step = 0; step < 3; ++step) {
        HostTensor g(DType::kF32, {n});
        g.Set(RandomTensor(DType::kBF16, {n}, 2 + step).ToDouble());
        AdamArgs args{.p = whole, .g = g, .m = m, .v = v, .rates = rates};
        args.beta1 = 0.9f;
        args.beta2 = 0.95f;
        args.cautious = cautious;
        AdamUpdate(args, *MakeCpuQueue(1));
        args.p = upper;
        args.m = m2;
        args.v = v2;
        args.mantissa = lower;
        AdamUpdate(args, *MakeCpuQueue(2));
      }
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(upper.get().bf16()[i].bits, bits_of(i) >> 16) << i;
        ASSERT_EQ(lower.get().u16()[i], bits_of(i) & 0xFFFF) << i;
      }
      EXPECT_EQ(m2.ToDouble(), m.ToDouble());
      EXPECT_EQ(v2.ToDouble(), v.ToDouble());
    }
  }
}

// A second moment of 5e-14 counts as the floor of 1e-10, and only with a lower one its column
// becomes as strong as the other.
TEST(Optimizer, SecondMomentFloor) {
  for (float floor : {1e-10f, 1e-20f}) {
    const HostTensor o(DType::kBF16, {1, 1, 2}), w(DType::kF32, {1, 2}), p(DType::kBF16, {1, 1, 2});
    o.Set({1, 1e-6});
    NormalizeBySecondMoment({.o = o, .w = w, .p = p, .beta2 = 0.95f, .floor = floor},
                            *MakeCpuQueue(1));
    const std::vector<double> got = p.ToDouble();
    const double want = floor == 1e-10f ? 1e-6 * 1e5 * std::sqrt(0.05) : 1;
    EXPECT_NEAR(got[1] / got[0], want, 0.01 * want) << floor;
  }
}

TEST(Optimizer, ZeroGuardKeepsTheSecondMoment) {
  const HostTensor o = RandomTensor(DType::kBF16, {2, 6, 12}, 1), guard(DType::kI32, {1});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor w = RandomTensor(dtype, {2, 12}, 2), p(DType::kBF16, {2, 6, 12});
    const std::vector<double> before = w.ToDouble();
    o.get().bf16()[3] = ToBF16(NAN);
    NormalizeBySecondMoment({.o = o, .w = w, .guard = guard, .p = p, .beta2 = 0.95f},
                            *MakeCpuQueue(1));
    EXPECT_EQ(w.ToDouble(), before);
  }
}

// NorMuon's margin: x = u / (1.02 |u| + eps).
TEST(Optimizer, NormalizeFrobeniusScalesTheNorm) {
  const HostTensor u = Filled(DType::kBF16, {3, 4}), x(DType::kBF16, {1, 1, 2});
  NormalizeFrobenius(u.get().Reshape({1, 1, 2}), 1.02f, 1.0f, x, *MakeCpuQueue(1));
  EXPECT_TRUE(WithinBf16Steps(x.ToDouble()[0], 3 / 6.1, 0.5, 1e-6));
  EXPECT_TRUE(WithinBf16Steps(x.ToDouble()[1], 4 / 6.1, 0.5, 1e-6));
}

TEST(Optimizer, MatrixUpdateMatchesFloat64) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor p = RandomTensor(dtype, {2, 130, 131}, 1);
    const HostTensor o = RandomTensor(DType::kBF16, {2, 130, 131}, 2, 0.1);
    const HostTensor lr = Filled(DType::kF32, {0.05, 0.02}), decay = Filled(DType::kF32, {1, 0.9});
    const std::vector<double> p0 = p.ToDouble();
    MatrixUpdate({.p = p, .o = o, .lr = lr, .decay = decay}, *MakeCpuQueue(2));
    const std::vector<double> update = o.ToDouble(), got = p.ToDouble();
    for (int64_t i = 0; i < p.get().size(); ++i) {
      const int64_t b = i / (130 * 131);
      const double want = p0[i] * decay.ToDouble()[b] - lr.ToDouble()[b] * update[i];
      const double steps = dtype == DType::kF32 ? 0 : 0.5;
      ASSERT_TRUE(WithinBf16Steps(got[i], want, steps, 1e-6)) << i;
    }
  }
}

// Case O1: no update, but decay.
TEST(Optimizer, O1_ZeroUpdateStillDecays) {
  const HostTensor p = RandomTensor(DType::kF32, {1, 3, 5}, 1);
  const std::vector<double> p0 = p.ToDouble();
  const HostTensor o(DType::kBF16, {1, 3, 5});
  const HostTensor lr = Filled(DType::kF32, {0.05}), decay = Filled(DType::kF32, {0.5});
  MatrixUpdate({.p = p, .o = o, .lr = lr, .decay = decay}, *MakeCpuQueue(1));
  for (size_t i = 0; i < p0.size(); ++i) EXPECT_EQ(p.ToDouble()[i], p0[i] * 0.5);
}

// Gradients that are not finite leave no trace under a zero guard, and under any other value of
// the guard they do.
TEST(Optimizer, ZeroGuardChangesNothing) {
  const auto queue = MakeCpuQueue(2);
  const int64_t n = 2 * 30 * 35;
  const HostTensor guard(DType::kI32, {1});
  const HostTensor rates = Filled(DType::kF32, {0.03, 0.99, 1e-8}), mu = Filled(DType::kF32, {0.9});
  const HostTensor lr = Filled(DType::kF32, {0.05, 0.02}), decay = Filled(DType::kF32, {1, 0.9});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor g = RandomTensor(DType::kF32, {n}, 1), u(DType::kBF16, {n});
    g.get().f32()[n / 2] = NAN;
    const HostTensor o = RandomTensor(DType::kBF16, {2, 30, 35}, 5);
    const HostTensor p = RandomTensor(dtype, {n}, 2), m = RandomTensor(dtype, {n}, 3);
    const HostTensor v = RandomTensor(dtype, {n}, 4), k = RandomTensor(dtype, {n}, 6);
    const HostTensor w = RandomTensor(dtype, {2, 30, 35}, 7);
    const auto state = [&] {
      std::vector<std::vector<double>> all;
      for (const HostTensor* t : {&p, &m, &v, &k, &w}) all.push_back(t->ToDouble());
      return all;
    };
    const auto step = [&](int32_t on) {
      guard.get().i32()[0] = on;
      AdamArgs args = Args({}, p, g, m, v, rates);
      args.guard = guard;
      AdamUpdate(args, *queue);
      MomentumUpdate({.g = g, .m = k, .mu = mu, .guard = guard, .u = u}, *queue);
      MatrixUpdate({.p = w, .o = o, .lr = lr, .decay = decay, .guard = guard}, *queue);
      queue->Synchronize();
    };
    const auto before = state();
    step(0);
    EXPECT_EQ(state(), before) << dtype;
    step(1);
    const auto after = state();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
  }
}

}  // namespace
}  // namespace kernels
