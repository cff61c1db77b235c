// What the record of 2026-01-18 adds to the optimizer ops: cautious decay, weights that keep their
// lower halves, and momentum in f32 of a gradient in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::kOneRounding;
using testing::RandomTensor;
using testing::WithinBf16Steps;

HostTensor Filled(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  tensor.Set(values);
  return tensor;
}

std::vector<uint8_t> Bits(const Tensor& t) {
  const auto* bytes = static_cast<const uint8_t*>(t.data());
  return {bytes, bytes + t.bytes()};
}

struct Rule {
  double beta1, beta2, lr, weight_decay;

  HostTensor Rates(int t) const {
    const double bias = std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    return Filled(DType::kF32, {lr * bias, lr * lr * weight_decay, 1e-10});
  }
  AdamArgs Args(Tensor p, Tensor g, Tensor m, Tensor v, Tensor rates) const {
    return {.p = p,
            .g = g,
            .m = m,
            .v = v,
            .rates = rates,
            .beta1 = static_cast<float>(beta1),
            .beta2 = static_cast<float>(beta2),
            .cautious = true};
  }
};

constexpr Rule kHead = {.beta1 = 0.5, .beta2 = 0.95, .lr = 0.008, .weight_decay = 0.75};
constexpr Rule kValueTable = {.beta1 = 0.75, .beta2 = 0.95, .lr = 0.6, .weight_decay = 0.025};

// p after the first update.
double FirstUpdate(const Rule& rule, DType dtype, double start, double gradient,
                   double* m_out = nullptr, double* v_out = nullptr) {
  const HostTensor p = Filled(dtype, {start}), g = Filled(DType::kF32, {gradient});
  const HostTensor m(DType::kF32, {1}), v(DType::kF32, {1});
  AdamUpdate(rule.Args(p, g, m, v, rule.Rates(1)), *MakeCpuQueue(1));
  if (m_out != nullptr) *m_out = m.ToDouble()[0];
  if (v_out != nullptr) *v_out = v.ToDouble()[0];
  return p.ToDouble()[0];
}

// With p in f32, g is not rounded; f32 roundings of values up to 0.5 remain.
TEST(Cautious, UO_30_AdamGoldenOfTheHead) {
  double m = 0, v = 0;
  EXPECT_NEAR(FirstUpdate(kHead, DType::kF32, 0.5, 0.1, &m, &v), 0.5 - 0.008024, 1e-7);
  EXPECT_NEAR(m, 0.05, 1e-8);
  EXPECT_NEAR(v, 5e-4, 1e-9);
  EXPECT_EQ(FirstUpdate(kHead, DType::kBF16, 0.5, 0.1), 0.4921875);
  // The update makes p larger: no decay.
  EXPECT_NEAR(FirstUpdate(kHead, DType::kF32, -0.5, 0.1), -0.5 - 0.008, 1e-7);
  EXPECT_EQ(FirstUpdate(kHead, DType::kBF16, -0.5, 0.1), -0.5078125);
}

TEST(Cautious, UO_31_AdamGoldenOfTheValueTables) {
  EXPECT_NEAR(FirstUpdate(kValueTable, DType::kF32, 0.5, 0.1), 0.5 - 0.6045, 2e-7);
  EXPECT_NEAR(FirstUpdate(kValueTable, DType::kBF16, 0.5, 0.1), -0.10449219, 5e-9);
}

TEST(Cautious, AdamMatchesFloat64) {
  const auto queue = MakeCpuQueue(2);
  const int64_t n = 1003;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Rule& rule : {kHead, kValueTable}) {
      const HostTensor p = RandomTensor(dtype, {n}, 1);
      const HostTensor m(DType::kF32, {n}), v(DType::kF32, {n});
      int decayed = 0;
      for (int t = 1; t <= 3; ++t) {
        const HostTensor g = RandomTensor(DType::kF32, {n}, 10 + t), rates = rule.Rates(t);
        const std::vector<double> p0 = p.ToDouble(), m0 = m.ToDouble(), v0 = v.ToDouble();
        AdamUpdate(rule.Args(p, g, m, v, rates), *queue);
        const std::vector<double> p1 = p.ToDouble(), m1 = m.ToDouble(), v1 = v.ToDouble();
        for (int64_t i = 0; i < n; ++i) {
          const float exact = g.get().f32()[i];
          const double grad = dtype == DType::kBF16 ? RoundToBF16(exact) : exact;
          const double mi = rule.beta1 * m0[i] + (1 - rule.beta1) * grad;
          const double vi = rule.beta2 * v0[i] + (1 - rule.beta2) * grad * grad;
          double u = rates.ToDouble()[0] * mi / (std::sqrt(vi) + 1e-10);
          decayed += u * p0[i] > 0;
          if (u * p0[i] > 0) u += p0[i] * rates.ToDouble()[1];
          const double pi = p0[i] - u;
          // The sums may cancel: f32 rounding of their terms, up to 4, comes on top.
          ASSERT_NEAR(m1[i], mi, 1e-6);
          ASSERT_NEAR(v1[i], vi, 1e-6);
          const double steps = dtype == DType::kF32 ? 0 : 0.5;
          ASSERT_TRUE(WithinBf16Steps(p1[i], pi, steps, 2e-6)) << i;
        }
      }
      EXPECT_GT(decayed, n);
      EXPECT_LT(decayed, 2 * n);
    }
  }
}

TEST(Cautious, UO_32_NesterovGolden) {
  const std::vector<double> gradients = {1, 2, -1};
  const std::vector<double> want_m = {0.15, 0.4275, 0.213375};
  const std::vector<double> want_u = {0.2775, 0.663375, 0.03136875};
  const HostTensor mu = Filled(DType::kF32, {0.85});
  for (DType gradient : {DType::kF32, DType::kBF16}) {  // the gradients are exact in both
    const HostTensor m(DType::kF32, {1}), u(DType::kBF16, {1});
    for (int i = 0; i < 3; ++i) {
      const HostTensor g = Filled(DType::kF32, {gradients[i]});
      MomentumUpdate({.g = g, .m = m, .mu = mu, .u = u, .gradient = gradient}, *MakeCpuQueue(1));
      EXPECT_NEAR(m.ToDouble()[0], want_m[i], 2e-7) << i;
      EXPECT_TRUE(WithinBf16Steps(u.ToDouble()[0], want_u[i], 0.5, 2e-7)) << i;
    }
  }
}

// What g is rounded to is the argument's, not the momentum's, matter.
TEST(Cautious, MomentumRoundsTheGradientAsTold) {
  const int64_t n = 1003;
  const double keep = static_cast<float>(0.95);
  const HostTensor g = RandomTensor(DType::kF32, {n}, 1), mu = Filled(DType::kF32, {keep});
  for (DType moment : {DType::kF32, DType::kBF16}) {
    for (DType gradient : {DType::kF32, DType::kBF16}) {
      const HostTensor m = RandomTensor(moment, {n}, 2, 0.1), u(DType::kBF16, {n});
      const std::vector<double> m0 = m.ToDouble();
      MomentumUpdate({.g = g, .m = m, .mu = mu, .u = u, .gradient = gradient}, *MakeCpuQueue(2));
      const std::vector<double> m1 = m.ToDouble(), u1 = u.ToDouble();
      double rounding = 0;  // what the wrong rounding of g would make of m
      for (int64_t i = 0; i < n; ++i) {
        const float exact = g.get().f32()[i];
        const double grad = gradient == DType::kBF16 ? RoundToBF16(exact) : exact;
        const double mi = m0[i] + (1 - keep) * (grad - m0[i]);
        const double ui = grad + keep * (mi - grad);
        const double steps = moment == DType::kF32 ? 0 : kOneRounding;
        ASSERT_TRUE(WithinBf16Steps(m1[i], mi, steps, 4e-7)) << i;
        ASSERT_TRUE(WithinBf16Steps(u1[i], ui, kOneRounding, 4e-7)) << i;
        rounding = std::max(rounding, (1 - keep) * std::fabs(RoundToBF16(exact) - exact));
      }
      EXPECT_GT(rounding, 1e-4);  // far above the tolerance of an f32 m
    }
  }
}

// Weights of SplitMatrixUpdate as one f32 each.
struct Split {
  explicit Split(std::vector<int64_t> dims) : p(DType::kBF16, dims), mantissa(DType::kU16, dims) {}
  Split(std::vector<int64_t> dims, uint32_t seed) : Split(dims) {
    const HostTensor wide = RandomTensor(DType::kF32, dims, seed);
    for (int64_t i = 0; i < wide.get().size(); ++i) Put(i, wide.get().f32()[i]);
  }
  void Put(int64_t i, float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    p.get().bf16()[i].bits = static_cast<uint16_t>(bits >> 16);
    mantissa.get().u16()[i] = static_cast<uint16_t>(bits);
  }
  uint32_t At(int64_t i) const {
    return uint32_t{p.get().bf16()[i].bits} << 16 | mantissa.get().u16()[i];
  }
  SplitMatrixArgs Args(Tensor o, Tensor lr, Tensor decay, Tensor guard = {}) const {
    return {.p = p,
            .mantissa = mantissa,
            .o = o,
            .lr = lr,
            .decay = decay,
            .guard = guard,
            .cautious = cautious};
  }
  HostTensor p, mantissa;
  bool cautious = true;
};

// As any element of a vector, and of its tail.
TEST(Cautious, UO_36_MantissaGolden) {
  struct Case {
    uint32_t before;
    double update;
    uint32_t after;
  };
  const HostTensor lr = Filled(DType::kF32, {0.023}), decay = Filled(DType::kF32, {0.0276});
  for (const Case& c : {Case{0x3F800000, 0.5, 0x3F7CE4BC},
                        {0x3F800000, -0.5, 0x3F8178D5},
                        {0x3F801234, 0, 0x3F7FFAC8}}) {
    for (int64_t n : {1, 45}) {
      Split w({1, 1, n});
      for (int64_t i = 0; i < n; ++i) w.Put(i, std::bit_cast<float>(c.before));
      HostTensor o(DType::kBF16, {1, 1, n});
      o.Set(std::vector<double>(n, c.update));
      SplitMatrixUpdate(w.Args(o, lr, decay), *MakeCpuQueue(1));
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(w.At(i), c.after) << std::hex << w.At(i);
    }
  }
}

// A step moves the f32 weight even where it is too small for bf16.
TEST(Cautious, UO_36_SmallStepsAddUp) {
  Split w({1, 1, 1});
  w.Put(0, 1.0f);
  const HostTensor o = Filled(DType::kBF16, {-0.5}), rate = Filled(DType::kF32, {0.0001});
  for (int step = 0; step < 1000; ++step) {
    SplitMatrixUpdate(w.Args(o.get().Reshape({1, 1, 1}), rate, rate), *MakeCpuQueue(1));
  }
  EXPECT_NEAR(std::bit_cast<float>(w.At(0)), 1.05, 1e-4);  // 1000 roundings of 2^-24 each
  EXPECT_EQ(w.p.ToDouble()[0], 1.046875);                  // truncated
}

TEST(Cautious, UO_37_ZeroGradientDecaysMatricesOnly) {
  for (double start : {0.5, -0.5}) {
    for (double zero : {0.0, -0.0}) {
      Split w({1, 1, 1});
      w.Put(0, static_cast<float>(start));
      const HostTensor o = Filled(DType::kBF16, {zero});
      SplitMatrixUpdate(w.Args(o.get().Reshape({1, 1, 1}), Filled(DType::kF32, {0.25}),
                               Filled(DType::kF32, {0.5})),
                        *MakeCpuQueue(1));
      EXPECT_EQ(std::bit_cast<float>(w.At(0)), start * (1 - 0.125)) << start << " " << zero;
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        EXPECT_EQ(FirstUpdate(kValueTable, dtype, start, zero), start) << start << " " << zero;
      }
    }
  }
}

// The formula with each product and difference in a float of its own.
float CautiousStep(float x, float o, float lr, float decay) {
  const float agreement = o * x;
  const float mask = agreement >= 0 ? 1.0f : 0.0f;
  const float masked = x * mask, decayed = masked * decay, shrink = decayed * lr;
  const float step = o * lr, after = x - shrink;
  return after - step;
}

TEST(Cautious, MatrixUpdateIsTheFormulaBitForBit) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {6, 12}, {130, 131}, {200, 264}}) {
    const HostTensor o = RandomTensor(DType::kBF16, {3, rows, cols}, 2, 0.1);
    const HostTensor lr = Filled(DType::kF32, {0.023, 0.046, 0.092});
    const HostTensor decay = Filled(DType::kF32, {0.0276, 0.3, 0});
    const Split before({3, rows, cols}, 1), one({3, rows, cols}, 1);
    SplitMatrixUpdate(one.Args(o, lr, decay), *MakeCpuQueue(1));
    for (int64_t i = 0; i < o.get().size(); ++i) {
      const int64_t matrix = i / (rows * cols);
      const float want =
          CautiousStep(std::bit_cast<float>(before.At(i)), ToFloat(o.get().bf16()[i]),
                       lr.get().f32()[matrix], decay.get().f32()[matrix]);
      ASSERT_EQ(one.At(i), std::bit_cast<uint32_t>(want)) << rows << " x " << cols << ", " << i;
    }
    for (int threads : {2, 3}) {
      const Split more({3, rows, cols}, 1);
      SplitMatrixUpdate(more.Args(o, lr, decay), *MakeCpuQueue(threads));
      EXPECT_EQ(Bits(more.p), Bits(one.p));
      EXPECT_EQ(Bits(more.mantissa), Bits(one.mantissa));
    }
  }
}

// One call on n elements against calls on uneven pieces, bitwise.
TEST(Cautious, BitsDoNotDependOnCuts) {
  const int64_t n = 40003;
  const HostTensor g = RandomTensor(DType::kF32, {n}, 1), o = RandomTensor(DType::kBF16, {n}, 5);
  const HostTensor rate = Filled(DType::kF32, {0.03}), mu = Filled(DType::kF32, {0.9});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto run = [&](int threads, const std::vector<int64_t>& pieces) {
      const auto queue = MakeCpuQueue(threads);
      const HostTensor p = RandomTensor(dtype, {n}, 2), m(DType::kF32, {n}), v(DType::kF32, {n});
      const HostTensor k = RandomTensor(DType::kF32, {n}, 4), u(DType::kBF16, {n});
      const Split w({n}, 3);
      int64_t begin = 0;
      for (int64_t size : pieces) {
        const auto cut = [&](Tensor t) { return t.Slice(begin, size); };
        const auto matrix = [&](Tensor t) { return cut(t).Reshape({1, 1, size}); };
        AdamUpdate(kValueTable.Args(cut(p), cut(g), cut(m), cut(v), kValueTable.Rates(1)), *queue);
        MomentumUpdate({.g = cut(g), .m = cut(k), .mu = mu, .u = cut(u), .gradient = DType::kBF16},
                       *queue);
        SplitMatrixUpdate({.p = matrix(w.p),
                           .mantissa = matrix(w.mantissa),
                           .o = matrix(o),
                           .lr = rate,
                           .decay = rate,
                           .cautious = true},
                          *queue);
        begin += size;
      }
      CHECK_EQ(begin, n);
      std::vector<std::vector<uint8_t>> all;
      for (const HostTensor* t : {&p, &m, &v, &k, &u, &w.p, &w.mantissa}) all.push_back(Bits(*t));
      return all;
    };
    const auto whole = run(1, {n});
    EXPECT_EQ(run(2, {n}), whole) << dtype;
    EXPECT_EQ(run(3, {1, 7, 16384, 3, 23605, 3}), whole) << dtype;
  }
}

TEST(Cautious, ZeroGuardChangesNothing) {
  const auto queue = MakeCpuQueue(2);
  const int64_t n = 2 * 30 * 35;
  const HostTensor guard(DType::kI32, {1}), g = RandomTensor(DType::kF32, {n}, 1);
  g.get().f32()[n / 2] = NAN;
  const HostTensor o = RandomTensor(DType::kBF16, {2, 30, 35}, 5);
  o.get().bf16()[7] = ToBF16(NAN);
  const HostTensor rate = Filled(DType::kF32, {0.03, 0.02});
  const HostTensor p = RandomTensor(DType::kBF16, {n}, 2), m = RandomTensor(DType::kF32, {n}, 3);
  const HostTensor v = RandomTensor(DType::kF32, {n}, 4);
  const Split w({2, 30, 35}, 6);
  const auto state = [&] {
    std::vector<std::vector<uint8_t>> all;
    for (const HostTensor* t : {&p, &m, &v, &w.p, &w.mantissa}) all.push_back(Bits(*t));
    return all;
  };
  const auto step = [&](int32_t on) {
    guard.get().i32()[0] = on;
    const HostTensor rates = kHead.Rates(1);
    AdamArgs args = kHead.Args(p, g, m, v, rates);
    args.guard = guard;
    AdamUpdate(args, *queue);
    SplitMatrixUpdate(w.Args(o, rate, rate, guard), *queue);
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
