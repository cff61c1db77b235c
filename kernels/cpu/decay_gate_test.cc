// SplitMatrixUpdate with a gate: what else than the update decides about decay.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

HostTensor Filled(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  tensor.Set(values);
  return tensor;
}

// f32 weights as their halves.
struct Split {
  Split(std::vector<int64_t> dims, uint32_t seed) : p(DType::kBF16, dims), low(DType::kU16, dims) {
    const HostTensor wide = RandomTensor(DType::kF32, dims, seed);
    for (int64_t i = 0; i < wide.get().size(); ++i) Put(i, wide.get().f32()[i]);
  }
  void Put(int64_t i, float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    p.get().bf16()[i].bits = static_cast<uint16_t>(bits >> 16);
    low.get().u16()[i] = static_cast<uint16_t>(bits);
  }
  float At(int64_t i) const {
    return std::bit_cast<float>(uint32_t{p.get().bf16()[i].bits} << 16 | low.get().u16()[i]);
  }
  HostTensor p, low;
};

// Each product and difference in a float of its own.
float GatedStep(float x, float o, float gate, float lr, float decay) {
  const float agreement = gate * x;
  const float mask = agreement >= 0 ? 1.0f : 0.0f;
  const float masked = x * mask, decayed = masked * decay, shrink = decayed * lr;
  const float step = o * lr, after = x - shrink;
  return after - step;
}

TEST(DecayGate, AN_12_TheGatesSignDecidesBitForBit) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {130, 131}, {200, 264}}) {
    const std::vector<int64_t> dims = {3, rows, cols};
    const HostTensor o = RandomTensor(DType::kBF16, dims, 2, 0.1);
    const HostTensor gate = RandomTensor(DType::kF32, dims, 3, 0.01);
    for (int64_t i = 0; i < gate.get().size(); i += 3) gate.get().f32()[i] = 0;
    const HostTensor lr = Filled(DType::kF32, {0.023, 0.046, 0.092});
    const HostTensor decay = Filled(DType::kF32, {0.05, 0.3, 0});
    const Split before(dims, 1);
    for (int threads : {1, 3}) {
      const Split after(dims, 1);
      SplitMatrixUpdate({.p = after.p,
                         .mantissa = after.low,
                         .o = o,
                         .gate = gate,
                         .lr = lr,
                         .decay = decay,
                         .cautious = true},
                        *MakeCpuQueue(threads));
      for (int64_t i = 0; i < o.get().size(); ++i) {
        const int64_t matrix = i / (rows * cols);
        const float want = GatedStep(before.At(i), ToFloat(o.get().bf16()[i]), gate.get().f32()[i],
                                     lr.get().f32()[matrix], decay.get().f32()[matrix]);
        ASSERT_EQ(after.At(i), want) << rows << " x " << cols << ", " << i;
      }
    }
  }
}

// A closed gate keeps an agreeing update from decaying, an open one (zero is) lets an opposing one.
TEST(DecayGate, AN_12_IsNotTheUpdatesSign) {
  for (const auto& [gate, decays] : {std::pair{-0.5, false}, {0.5, true}, {0.0, true}}) {
    for (double update : {0.25, -0.25}) {
      Split w({1, 1, 1}, 1);
      w.Put(0, 1.0f);
      SplitMatrixUpdate({.p = w.p,
                         .mantissa = w.low,
                         .o = Filled(DType::kBF16, {update}).get().Reshape({1, 1, 1}),
                         .gate = Filled(DType::kF32, {gate}).get().Reshape({1, 1, 1}),
                         .lr = Filled(DType::kF32, {0.5}),
                         .decay = Filled(DType::kF32, {0.25}),
                         .cautious = true},
                        *MakeCpuQueue(1));
      EXPECT_EQ(w.At(0), 1 - (decays ? 0.125 : 0) - update / 2) << gate << " " << update;
    }
  }
}

// Also where the direction is not finite, and a negative zero.
TEST(DecayGate, AN_13_AMatrixWithoutRateKeepsItsBits) {
  const std::vector<int64_t> dims = {3, 5, 7};
  const HostTensor lr = Filled(DType::kF32, {0.1, 0, 0.1}), decay = Filled(DType::kF32, {1, 1, 1});
  const HostTensor o = RandomTensor(DType::kBF16, dims, 2);
  const HostTensor gate = RandomTensor(DType::kF32, dims, 3);
  o.get().bf16()[40] = ToBF16(NAN);
  for (bool gated : {false, true}) {
    Split w(dims, 1);
    w.Put(50, -0.0f);
    const std::vector<double> upper = w.p.ToDouble();
    const std::vector<uint16_t> low(w.low.get().u16(), w.low.get().u16() + 105);
    SplitMatrixUpdate({.p = w.p,
                       .mantissa = w.low,
                       .o = o,
                       .gate = gated ? gate.get() : Tensor(),
                       .lr = lr,
                       .decay = decay,
                       .cautious = true},
                      *MakeCpuQueue(2));
    for (int i = 0; i < 105; ++i) {
      const bool frozen = i / 35 == 1;
      const bool same = w.p.ToDouble()[i] == upper[i] && w.low.get().u16()[i] == low[i];
      ASSERT_EQ(same, frozen) << gated << " " << i;
    }
    EXPECT_TRUE(std::signbit(w.At(50)));
  }
}

}  // namespace
}  // namespace kernels
