#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

HostTensor Filled(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  tensor.Set(values);
  return tensor;
}

// One element in float64.
struct Oracle {
  double fast = 0, slow = 0;

  double Step(double g, double lookahead, double beta, double weight, double slow_rate) {
    fast += (1 - beta) * (g - fast);
    slow += slow_rate * (g - slow);
    return g + lookahead * (weight * fast + (1 - weight) * slow - g);
  }
};

TEST(TwinRail, AN_05_Golden) {
  const double want[3][4] = {{0.15, 0.02, 0.077005, 0.14161465},
                             {0.4275, 0.0596, 0.22092415, 0.34545946},
                             {0.213375, 0.038408, 0.11513103, 0.03707186}};
  const HostTensor fast(DType::kF32, {1}), slow(DType::kF32, {1}), u(DType::kBF16, {1});
  const HostTensor rates = Filled(DType::kF32, {0.93, 0.85, 0.4385});
  Oracle oracle;
  for (int i = 0; i < 3; ++i) {
    const double g = i < 2 ? i + 1 : -1;
    const double exact = oracle.Step(g, 0.93, 0.85, 0.4385, 0.02);
    EXPECT_NEAR(oracle.fast, want[i][0], 1e-12);
    EXPECT_NEAR(oracle.slow, want[i][1], 1e-12);
    EXPECT_NEAR(0.4385 * oracle.fast + (1 - 0.4385) * oracle.slow, want[i][2], 5.1e-9);
    EXPECT_NEAR(exact, want[i][3], 5.1e-9);
    TwinRailUpdate({.g = Filled(DType::kF32, {g}),
                    .fast = fast,
                    .slow = slow,
                    .rates = rates,
                    .u = u,
                    .slow_rate = 0.02f},
                   *MakeCpuQueue(1));
    EXPECT_NEAR(fast.ToDouble()[0], want[i][0], 2e-7);
    EXPECT_NEAR(slow.ToDouble()[0], want[i][1], 2e-7);
    // u = g (1 - 0.93) + ... loses the last bits of a g of 2; then one rounding to bf16.
    EXPECT_TRUE(WithinBf16Steps(u.ToDouble()[0], want[i][3], 0.5, 4e-7));
  }
}

// Before the rails engage: the weight is 1, and the slow rail gathers all the same.
TEST(TwinRail, AN_04_WeightOneIsPlainMomentum) {
  const int64_t n = 1003;
  const HostTensor g = RandomTensor(DType::kF32, {n}, 1);
  const HostTensor fast = RandomTensor(DType::kF32, {n}, 2), m = RandomTensor(DType::kF32, {n}, 2);
  const HostTensor slow(DType::kF32, {n}), u(DType::kBF16, {n}), want(DType::kBF16, {n});
  const HostTensor rates = Filled(DType::kF32, {0.9, 0.9, 1});
  TwinRailUpdate({.g = g, .fast = fast, .slow = slow, .rates = rates, .u = u, .slow_rate = 0.02f},
                 *MakeCpuQueue(1));
  MomentumUpdate({.g = g, .m = m, .mu = Filled(DType::kF32, {0.9}), .u = want}, *MakeCpuQueue(1));
  EXPECT_EQ(fast.ToDouble(), m.ToDouble());
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_NEAR(slow.ToDouble()[i], 0.02 * g.ToDouble()[i], 1e-7);
    // slow + 1 (fast - slow) is fast up to f32: perhaps the neighbour in bf16.
    ASSERT_TRUE(WithinBf16Steps(u.ToDouble()[i], want.ToDouble()[i], 1, 1e-6));
  }
}

TEST(TwinRail, MatchesFloat64OverSteps) {
  const int64_t n = 1003;
  for (DType gradient : {DType::kF32, DType::kBF16}) {
    const HostTensor fast(DType::kF32, {n}), slow(DType::kF32, {n}), u(DType::kBF16, {n});
    std::vector<Oracle> oracle(n);
    double most = 0;  // what the wrong rounding of g would make of a rail
    for (int step = 0; step < 4; ++step) {
      const HostTensor g = RandomTensor(DType::kF32, {n}, 10 + step);
      const std::vector<double> rates = {0.9 + 0.01 * step, 0.85, step < 2 ? 1 : 0.4385};
      TwinRailUpdate({.g = g,
                      .fast = fast,
                      .slow = slow,
                      .rates = Filled(DType::kF32, rates),
                      .u = u,
                      .slow_rate = 0.02f,
                      .gradient = gradient},
                     *MakeCpuQueue(2));
      for (int64_t i = 0; i < n; ++i) {
        const float exact = g.get().f32()[i];
        const double grad = gradient == DType::kBF16 ? RoundToBF16(exact) : exact;
        const double want = oracle[i].Step(grad, rates[0], rates[1], rates[2], 0.02);
        // Terms up to 4, which may cancel, are rounded to f32 a few times a step.
        ASSERT_NEAR(fast.ToDouble()[i], oracle[i].fast, 2e-6) << i;
        ASSERT_NEAR(slow.ToDouble()[i], oracle[i].slow, 2e-6) << i;
        ASSERT_TRUE(WithinBf16Steps(u.ToDouble()[i], want, 0.5, 4e-6)) << i;
        most = std::max(most, 0.15 * std::fabs(RoundToBF16(exact) - exact));
      }
    }
    EXPECT_GT(most, 1e-4);
  }
}

TEST(TwinRail, BitsDoNotDependOnCutsAndZeroGuardChangesNothing) {
  const int64_t n = 40003;
  const HostTensor g = RandomTensor(DType::kF32, {n}, 1);
  const HostTensor rates = Filled(DType::kF32, {0.93, 0.85, 0.4385}), guard(DType::kI32, {1});
  const auto run = [&](int threads, const std::vector<int64_t>& pieces, int32_t on) {
    const HostTensor fast = RandomTensor(DType::kF32, {n}, 2), u(DType::kBF16, {n});
    const HostTensor slow = RandomTensor(DType::kF32, {n}, 3);
    guard.get().i32()[0] = on;
    int64_t begin = 0;
    for (int64_t size : pieces) {
      const auto cut = [&](const HostTensor& t) { return t.get().Slice(begin, size); };
      TwinRailUpdate({.g = cut(g),
                      .fast = cut(fast),
                      .slow = cut(slow),
                      .rates = rates,
                      .guard = guard,
                      .u = cut(u),
                      .slow_rate = 0.02f},
                     *MakeCpuQueue(threads));
      begin += size;
    }
    CHECK_EQ(begin, n);
    return std::vector<std::vector<double>>{fast.ToDouble(), slow.ToDouble(), u.ToDouble()};
  };
  const auto whole = run(1, {n}, 1);
  EXPECT_EQ(run(2, {n}, 1), whole);
  EXPECT_EQ(run(3, {1, 7, 16384, 3, 23605, 3}, 1), whole);
  const auto off = run(2, {n}, 0);
  EXPECT_EQ(off[0], RandomTensor(DType::kF32, {n}, 2).ToDouble());
  EXPECT_EQ(off[1], RandomTensor(DType::kF32, {n}, 3).ToDouble());
}

}  // namespace
}  // namespace kernels
