// The sparse attention gate of kernels/ops/qkv.h.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/qkv_testing.h"
#include "kernels/ops/qkv.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

struct GateData {
  GateData(const Case& c, int64_t k, int64_t leaves)
      : dims{c.slots, c.tokens, c.dim()},
        o(RandomTensor(DType::kBF16, dims, 1)),
        u(RandomTensor(DType::kBF16, {c.slots, c.tokens, k + 4}, 2)),
        gate_w(RandomTensor(DType::kBF16, {c.heads, k}, 3)),
        dy(RandomTensor(DType::kBF16, dims, 4)),
        y(DType::kBF16, dims),
        do_(DType::kBF16, dims),
        du_head(DType::kF32, {c.slots, c.tokens, k}),
        dgate_w(DType::kF32, {leaves, c.heads * k}) {}

  std::vector<Tensor> Outputs() const { return {y, do_, du_head, dgate_w}; }

  std::vector<int64_t> dims;
  HostTensor o, u, gate_w, dy, y, do_, du_head, dgate_w;
};

void RunGate(const GateData& data, int threads, int64_t begin, int64_t count, Tensor leaf) {
  const auto part = [&](const HostTensor& tensor) { return tensor.get().Slice(begin, count); };
  const auto queue = MakeCpuQueue(threads);
  HeadGate(part(data.o), part(data.u), data.gate_w, part(data.y), *queue);
  HeadGateGrad({.dy = part(data.dy),
                .o = part(data.o),
                .u = part(data.u),
                .gate_w = data.gate_w,
                .do_ = part(data.do_),
                .du_head = part(data.du_head),
                .dgate_w = leaf},
               *queue);
}

void RunGate(const Case& c, const GateData& data, int threads) {
  RunGate(data, threads, 0, c.slots, data.dgate_w);
}

struct GateOracle {
  GateOracle(const Case& c, const GateData& data, int64_t k)
      : c(c), k(k), o(data.o.ToDouble()), u(data.u.ToDouble()), gate_w(data.gate_w.ToDouble()) {}

  Doubles Forward() const {
    Doubles y(o.size());
    for (int64_t row = 0; row < c.rows(); ++row) {
      for (int64_t head = 0; head < c.heads; ++head) {
        double x = 0;
        for (int64_t j = 0; j < k; ++j) x += gate_w[head * k + j] * u[row * (k + 4) + j];
        const double gate = 1 / (1 + std::exp(-x));
        const int64_t at = row * c.dim() + head * c.head_dim;
        for (int64_t i = 0; i < c.head_dim; ++i) y[at + i] = o[at + i] * gate;
      }
    }
    return y;
  }

  const Case& c;
  int64_t k;
  Doubles o, u, gate_w;
};

class HeadGateTest : public ::testing::TestWithParam<Case> {};

TEST_P(HeadGateTest, ForwardMatchesFloat64) {
  const Case& c = GetParam();
  const GateData data(c, 12, 1);
  RunGate(c, data, 2);
  // The gate's f32 error is of the order of 2^-22.
  ExpectWithinBf16Steps(data.y.ToDouble(), GateOracle(c, data, 12).Forward(), kOneRounding, 0, "y");
}

TEST_P(HeadGateTest, ThreadsSlotsAndLeavesChangeNoBit) {
  const Case& c = GetParam();
  const GateData want(c, 12, c.slots);
  RunGate(c, want, 1);
  for (int threads : {2, 3}) {
    const GateData got(c, 12, c.slots);
    RunGate(c, got, threads);
    ExpectSameBits(got.Outputs(), want.Outputs(), "threads");
  }
  const GateData alone(c, 12, c.slots);
  for (int64_t slot = 0; slot < c.slots; ++slot) {
    RunGate(alone, 2, slot, 1, alone.dgate_w.get().Slice(slot, 1));
  }
  ExpectSameBits(alone.Outputs(), want.Outputs(), "slots alone");

  // One leaf: the slots' sums in slot order.
  const GateData one(c, 12, 1);
  RunGate(c, one, 2);
  const int64_t size = c.heads * 12;
  for (int64_t i = 0; i < size; ++i) {
    float sum = 0;
    for (int64_t slot = 0; slot < c.slots; ++slot) {
      sum += want.dgate_w.get().f32()[slot * size + i];
    }
    EXPECT_EQ(one.dgate_w.get().f32()[i], sum) << i;
  }
}

class HeadGateGradTest : public ::testing::TestWithParam<Case> {};

TEST_P(HeadGateGradTest, MatchesFiniteDifferences) {
  const Case& c = GetParam();
  const int64_t k = 5;
  const GateData data(c, k, 1);
  RunGate(c, data, 2);
  GateOracle oracle(c, data, k);
  const Doubles dy = data.dy.ToDouble();
  constexpr double kStep = 1e-5;
  const auto differences = [&](Doubles& input) {
    Doubles grad;
    for (double& x : input) {
      const double before = x;
      x = before + kStep;
      const double up = Sum(oracle.Forward(), dy);
      x = before - kStep;
      const double down = Sum(oracle.Forward(), dy);
      x = before;
      grad.push_back((up - down) / (2 * kStep));
    }
    return grad;
  };
  ExpectWithinBf16Steps(data.do_.ToDouble(), differences(oracle.o), kOneRounding, 1e-6, "do");
  ExpectNear(data.dgate_w.ToDouble(), differences(oracle.gate_w), 1e-5, 1e-4, "dgate_w");
  const Doubles du = differences(oracle.u);
  Doubles du_head;
  for (int64_t row = 0; row < c.rows(); ++row) {
    du_head.insert(du_head.end(), du.begin() + row * (k + 4), du.begin() + row * (k + 4) + k);
  }
  ExpectNear(data.du_head.ToDouble(), du_head, 1e-5, 1e-4, "du_head");
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadGateTest,
                         ::testing::Values(Case{1, 1, 1, 8, false}, Case{2, 7, 2, 24, false},
                                           Case{3, 5, 3, 8, false}, Case{3, 130, 6, 128, false}));

INSTANTIATE_TEST_SUITE_P(Shapes, HeadGateGradTest,
                         ::testing::Values(Case{1, 1, 1, 8, false}, Case{2, 7, 2, 24, false},
                                           Case{3, 5, 3, 8, false}, Case{1, 67, 2, 8, false}));

TEST(HeadGate, GradientMayOverwriteDy) {
  const Case c = {1, 16, 2, 24, false};
  const GateData data(c, 12, 1);
  RunGate(c, data, 1);
  const GateData again(c, 12, 1);
  const auto queue = MakeCpuQueue(1);
  HeadGateGrad({.dy = again.dy,
                .o = again.o,
                .u = again.u,
                .gate_w = again.gate_w,
                .do_ = again.dy,
                .du_head = again.du_head,
                .dgate_w = again.dgate_w},
               *queue);
  ExpectSameBits({again.dy, again.du_head, again.dgate_w}, {data.do_, data.du_head, data.dgate_w},
                 "in place");
}

// Far out the gate is 0 or 1, without an overflow on the way.
TEST(HeadGate, Saturates) {
  const Case c = {1, 2, 1, 8, false};
  const GateData data(c, 12, 1);
  for (int64_t i = 0; i < data.u.get().size(); ++i) {
    data.u.get().bf16()[i] = ToBF16(i < 16 ? 1e4f : -1e4f);
  }
  for (int64_t i = 0; i < 12; ++i) data.gate_w.get().bf16()[i] = ToBF16(1e4f);
  RunGate(c, data, 1);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(data.y.get().bf16()[i], data.o.get().bf16()[i]);
    EXPECT_EQ(ToFloat(data.y.get().bf16()[8 + i]), 0.0f);
  }
}

}  // namespace
}  // namespace kernels
