// What the track-2 record of 2025-04-16 needs of the optimizer ops: split weights without cautious
// decay, their momentum, and Adam with the epsilon inside of the bias correction.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

HostTensor Filled(const std::vector<double>& values) {
  HostTensor tensor(DType::kF32, {static_cast<int64_t>(values.size())});
  tensor.Set(values);
  return tensor;
}

// Weights of one f32 each.
struct Split {
  explicit Split(std::vector<int64_t> dims) : p(DType::kBF16, dims), mantissa(DType::kU16, dims) {}
  void Put(int64_t i, uint32_t bits) {
    p.get().bf16()[i].bits = static_cast<uint16_t>(bits >> 16);
    mantissa.get().u16()[i] = static_cast<uint16_t>(bits);
  }
  uint32_t At(int64_t i) const {
    return uint32_t{p.get().bf16()[i].bits} << 16 | mantissa.get().u16()[i];
  }
  void Update(const HostTensor& o, const HostTensor& lr, const HostTensor& decay,
              int threads = 1) const {
    const auto queue = MakeCpuQueue(threads);
    SplitMatrixUpdate({.p = p, .mantissa = mantissa, .o = o, .lr = lr, .decay = decay}, *queue);
  }
  HostTensor p, mantissa;
};

// The factor is formed in double. As any element of a vector, and of its tail.
TEST(SplitMatrix, T2_28_BitVectors) {
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
    for (int64_t n : {1, 45}) {
      Split w({1, 1, n});
      for (int64_t i = 0; i < n; ++i) w.Put(i, c.before);
      HostTensor o(DType::kBF16, {1, 1, n});
      o.Set(std::vector<double>(n, c.update));
      w.Update(o, Filled({c.lr}), Filled({1 - c.weight_decay}));
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(w.At(i), c.after) << std::hex << w.At(i);
    }
  }
}

// Each step is below half a bf16 ulp of 1, which alone would never move.
TEST(SplitMatrix, T2_28_SmallStepsAddUp) {
  Split w({1, 1, 1});
  w.Put(0, 0x3F800000);
  HostTensor o(DType::kBF16, {1, 1, 1});
  o.Set({1});
  const HostTensor lr = Filled({1e-4}), decay = Filled({1});
  for (int step = 0; step < 1000; ++step) w.Update(o, lr, decay);
  EXPECT_EQ(w.At(0), 0x3F666550u) << std::hex << w.At(0);
  EXPECT_EQ(w.p.ToDouble()[0], 0.8984375);
}

// Decay alone: every bf16 weight that is not zero goes to its neighbour next to zero, because the
// halves are cut, not rounded. All bf16 magnitudes up to 0x3CDE, the largest initial weight.
TEST(SplitMatrix, T2_29_FirstUpdateStepsTowardsZero) {
  for (double weight_decay : {0.0005, 0.00025}) {
    const int64_t n = 0x3CDE + 1;
    Split w({2, 1, n});
    for (int64_t i = 0; i < n; ++i) {
      w.Put(i, static_cast<uint32_t>(i) << 16);
      w.Put(n + i, (0x8000u | static_cast<uint32_t>(i)) << 16);
    }
    const HostTensor o(DType::kBF16, {2, 1, n});
    const HostTensor lr = Filled({0.05, 0.05});
    const HostTensor decay = Filled({1 - weight_decay, 1 - weight_decay});
    w.Update(o, lr, decay);
    EXPECT_EQ(w.At(0), 0u);
    EXPECT_EQ(w.At(n), 0x80000000u);
    for (int64_t i = 1; i < n; ++i) {
      ASSERT_EQ(w.At(i) >> 16, i - 1) << i;
      ASSERT_EQ(w.At(n + i) >> 16, 0x8000u + i - 1) << i;
    }
  }
}

// The formula with each product and difference in a float of its own; threads change nothing.
TEST(SplitMatrix, IsTheFormulaBitForBit) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {6, 12}, {130, 131}, {200, 264}}) {
    const HostTensor before = RandomTensor(DType::kF32, {3, rows, cols}, 1);
    const HostTensor o = RandomTensor(DType::kBF16, {3, rows, cols}, 2, 0.1);
    const HostTensor lr = Filled({0.025, 0.05, 0.1}), decay = Filled({0.9995, 0.75, 1});
    for (int threads : {1, 2, 3}) {
      Split w({3, rows, cols});
      const int64_t n = before.get().size();
      for (int64_t i = 0; i < n; ++i) w.Put(i, std::bit_cast<uint32_t>(before.get().f32()[i]));
      w.Update(o, lr, decay, threads);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t matrix = i / (rows * cols);
        const float decayed = before.get().f32()[i] * decay.get().f32()[matrix];
        const float step = ToFloat(o.get().bf16()[i]) * lr.get().f32()[matrix];
        const float after = decayed - step;
        ASSERT_EQ(w.At(i), std::bit_cast<uint32_t>(after)) << rows << " x " << cols << ", " << i;
      }
    }
  }
}

// A gradient of 1, momentum from 0.85 to 0.95 in 300 steps.
TEST(Momentum, T2_31_ConstantGradient) {
  const double want_m[] = {0.15, 0.2772167, 0.3851523}, want_u[] = {0.2775, 0.3853932, 0.4769696};
  const HostTensor g = Filled({1}), m = Filled({0}), u(DType::kBF16, {1});
  for (int step = 0; step < 3; ++step) {
    const double f = step / 300.0, mu = (1 - f) * 0.85 + f * 0.95;
    MomentumUpdate({.g = g, .m = m, .mu = Filled({mu}), .u = u, .gradient = DType::kBF16},
                   *MakeCpuQueue(1));
    EXPECT_NEAR(m.ToDouble()[0], want_m[step], 1.5e-7) << step;
    EXPECT_TRUE(testing::WithinBf16Steps(u.ToDouble()[0], want_u[step], 0.5, 2e-7)) << step;
  }
}

std::vector<double> RunAdam(double lr, double start, const std::vector<double>& gradients) {
  const HostTensor p = Filled({start}), m = Filled({0}), v = Filled({0});
  std::vector<double> path;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const double root = std::sqrt(1 - std::pow(0.95, i + 1));
    const double step_size = lr * root / (1 - std::pow(0.8, i + 1));
    AdamUpdate({.p = p,
                .g = Filled({gradients[i]}),
                .m = m,
                .v = v,
                .rates = Filled({step_size, 1, 1e-10 * root}),
                .beta1 = 0.8f,
                .beta2 = 0.95f},
               *MakeCpuQueue(1));
    path.push_back(p.ToDouble()[0]);
  }
  return path;
}

void ExpectPath(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-6 * std::fabs(want[i])) << i;
  }
}

TEST(Adam, T2_32_EpsilonInsideOfTheBiasCorrection) {
  ExpectPath(RunAdam(1.0 / 320, 0, {1e-6, 1e-6, -2e-6}),
             {-0.0031246875, -0.0062493751, -0.0057486953});
  ExpectPath(RunAdam(0.015, 1, {0.5, 0.25}), {0.985, 0.9711901555});
}

}  // namespace
}  // namespace kernels
