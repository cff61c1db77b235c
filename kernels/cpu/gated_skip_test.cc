#include <cmath>
#include <ostream>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/qkv_testing.h"
#include "kernels/ops/gated.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

constexpr int kScalars = 4;
constexpr int kSkip = 2;

struct Shape {
  int64_t slots, tokens, dim, gate;
  int64_t rows() const { return slots * tokens; }
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.slots << " slots, " << s.tokens << " tokens, " << s.dim << " features, gate of "
       << s.gate;
}

struct Data {
  Data(const Shape& s, int64_t leaves)
      : dims{s.slots, s.tokens, s.dim},
        x(RandomTensor(DType::kBF16, dims, 1)),
        x0(RandomTensor(DType::kBF16, dims, 2)),
        saved(RandomTensor(DType::kBF16, dims, 3)),
        gate(RandomTensor(DType::kBF16, {1, s.gate}, 4, 0.5)),
        scalars(RandomTensor(DType::kF32, {kScalars}, 5)),
        y(DType::kBF16, dims),
        dy(RandomTensor(DType::kBF16, dims, 6)),
        dsaved(DType::kBF16, dims),
        dx0(RandomTensor(DType::kBF16, dims, 7)),
        dgate(DType::kF32, {leaves, s.gate}),
        dscalars(DType::kF32, {leaves, kScalars}) {}

  std::vector<Tensor> Outputs() const { return {y, dsaved, dx0, dgate, dscalars}; }

  std::vector<int64_t> dims;
  HostTensor x, x0, saved, gate, scalars, y, dy, dsaved, dx0, dgate, dscalars;
};

// Forward and backward of the slots [begin, begin + count), with leaves [leaf, + leaves) of the
// sums.
void RunOps(const Data& data, int threads, int64_t begin, int64_t count, int64_t leaf,
            int64_t leaves) {
  const auto part = [&](const HostTensor& tensor) { return tensor.get().Slice(begin, count); };
  GatedSkipArgs args;
  args.x = part(data.x);
  args.x0 = part(data.x0);
  args.saved = part(data.saved);
  args.gate = data.gate;
  args.scalars = data.scalars;
  args.skip = kSkip;
  args.y = part(data.y);
  const auto queue = MakeCpuQueue(threads);
  GatedSkip(args, *queue);
  GatedSkipGradArgs grad;
  grad.dy = part(data.dy);
  grad.dsaved = part(data.dsaved);
  grad.dx0 = part(data.dx0);
  grad.dgate = data.dgate.get().Slice(leaf, leaves);
  grad.dscalars = data.dscalars.get().Slice(leaf, leaves);
  args.x = args.y = Tensor();  // backward reads neither
  GatedSkipGrad(args, grad, *queue);
}

void RunOps(const Data& data, int threads) {
  RunOps(data, threads, 0, data.x.get().dim(0), 0, data.dgate.get().dim(0));
}

struct Oracle {
  Oracle(const Shape& s, const Data& data)
      : s(s),
        x(data.x.ToDouble()),
        x0(data.x0.ToDouble()),
        saved(data.saved.ToDouble()),
        gate(data.gate.ToDouble()),
        scalars(data.scalars.ToDouble()) {}

  static double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

  Doubles Forward() const {
    Doubles y = x;
    for (int64_t row = 0; row < s.rows(); ++row) {
      double dot = 0;
      for (int64_t i = 0; i < s.gate; ++i) dot += gate[i] * x0[row * s.dim + i];
      const double weight = Sigmoid(scalars[kSkip]) * 2 * Sigmoid(dot);
      for (int64_t i = row * s.dim; i < (row + 1) * s.dim; ++i) y[i] += weight * saved[i];
    }
    return y;
  }

  const Shape& s;
  Doubles x, x0, saved, gate, scalars;
};

class GatedSkipTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GatedSkipTest, ForwardMatchesFloat64) {
  const Shape& s = GetParam();
  const Data data(s, 1);
  RunOps(data, 2);
  // f32 inside: 2^-20 covers it where the terms cancel.
  ExpectWithinBf16Steps(data.y.ToDouble(), Oracle(s, data).Forward(), kOneRounding,
                        std::ldexp(1.0, -20), "y");
}

TEST_P(GatedSkipTest, InPlace) {
  const Shape& s = GetParam();
  const Data want(s, 1), got(s, 1);
  RunOps(want, 1);
  GatedSkipArgs args;
  args.x = args.y = got.x;
  args.x0 = got.x0;
  args.saved = got.saved;
  args.gate = got.gate;
  args.scalars = got.scalars;
  args.skip = kSkip;
  GatedSkip(args, *MakeCpuQueue(2));
  ExpectSameBits({got.x}, {want.y}, "in place");
}

TEST_P(GatedSkipTest, ThreadsSlotsAndLeavesChangeNoBit) {
  const Shape& s = GetParam();
  const Data want(s, s.slots);
  RunOps(want, 1);
  for (int threads : {2, 3}) {
    const Data got(s, s.slots);
    RunOps(got, threads);
    ExpectSameBits(got.Outputs(), want.Outputs(), "threads");
  }
  const Data alone(s, s.slots);
  for (int64_t slot = 0; slot < s.slots; ++slot) RunOps(alone, 2, slot, 1, slot, 1);
  ExpectSameBits(alone.Outputs(), want.Outputs(), "slots alone");

  // One leaf: the slots' sums in slot order.
  const Data one(s, 1);
  RunOps(one, 2);
  const auto expect_sums = [&](Tensor sums, Tensor leaves) {
    for (int64_t i = 0; i < sums.size(); ++i) {
      float sum = 0;
      for (int64_t slot = 0; slot < s.slots; ++slot) sum += leaves.f32()[slot * sums.size() + i];
      EXPECT_EQ(sums.f32()[i], sum) << i;
    }
  };
  expect_sums(one.dgate, want.dgate);
  expect_sums(one.dscalars, want.dscalars);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GatedSkipTest,
                         ::testing::Values(Shape{1, 1, 8, 8}, Shape{3, 5, 13, 12},
                                           Shape{2, 70, 96, 12}, Shape{3, 48, 768, 12}));

class GatedSkipGradTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GatedSkipGradTest, MatchesFiniteDifferences) {
  const Shape& s = GetParam();
  const Data data(s, 1);
  const Doubles dy = data.dy.ToDouble();
  // What is added to.
  Doubles dx0 = data.dx0.ToDouble();
  Doubles dgate = RandomTensor(DType::kF32, data.dgate.get().dims(), 8).ToDouble();
  Doubles dscalars = RandomTensor(DType::kF32, data.dscalars.get().dims(), 9).ToDouble();
  data.dgate.Set(dgate);
  data.dscalars.Set(dscalars);
  RunOps(data, 2);
  Oracle oracle(s, data);
  constexpr double kStep = 1e-5;
  const auto derivative = [&](double& x) {
    const double before = x;
    x = before + kStep;
    const double up = Sum(oracle.Forward(), dy);
    x = before - kStep;
    const double down = Sum(oracle.Forward(), dy);
    x = before;
    return (up - down) / (2 * kStep);
  };
  const auto add = [&](Doubles& sums, Doubles& input) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += derivative(input[i]);
  };
  Doubles dsaved(dx0.size());
  add(dsaved, oracle.saved);
  add(dx0, oracle.x0);
  add(dgate, oracle.gate);
  add(dscalars, oracle.scalars);
  ExpectWithinBf16Steps(data.dsaved.ToDouble(), dsaved, kOneRounding, 1e-6, "dsaved");
  // ds is an f32 sum over the features.
  ExpectWithinBf16Steps(data.dx0.ToDouble(), dx0, kOneRounding, 1e-5, "dx0");
  ExpectNear(data.dgate.ToDouble(), dgate, 1e-5, 1e-4, "dgate");
  ExpectNear(data.dscalars.ToDouble(), dscalars, 1e-5, 1e-4, "dscalars");
}

INSTANTIATE_TEST_SUITE_P(Shapes, GatedSkipGradTest,
                         ::testing::Values(Shape{1, 1, 8, 8}, Shape{3, 5, 13, 12},
                                           Shape{2, 70, 8, 3}));

// x cancels the value's rounding, so that y shows the gate to more than the digits of a bf16.
TEST(GatedSkipFacts, UO_08_StartsAtTheSigmoidOfItsScalar) {
  const Shape s = {2, 5, 768, 12};
  const Data data(s, 1);
  constexpr double kNear = 0.1826171875;  // 187 / 1024
  data.x.Set(Doubles(data.x.get().size(), -kNear));
  data.saved.Set(Doubles(data.x.get().size(), 1.0));
  data.gate.Set(Doubles(s.gate));
  data.scalars.Set(Doubles(kScalars, -1.5));
  RunOps(data, 1);
  for (const double y : data.y.ToDouble()) ASSERT_NEAR(kNear + y, 0.1824255238, 1e-6);
}

}  // namespace
}  // namespace kernels
