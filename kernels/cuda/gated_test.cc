#include "kernels/ops/gated.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

// A value next to a rounding boundary may fall to the other side, since sums have another order:
// one bf16 step, which is two kBf16Roundoff of a number just above a power of two.
constexpr double kStep = 2 * kBf16Roundoff;
// f32 sums over tokens and features of numbers of both signs, relative to the rms of the results.
constexpr double kSum = 1e-3;
constexpr int64_t kVocab = 37, kScalars = 5;
constexpr int kSkip = 3;

enum class Heads { kPlain, kPaired, kKeyOffset };

struct Shape {
  int64_t slots, tokens, heads, head_dim;
  Heads kind;
  int64_t gate;  // features that the value gate reads; 0: no table
  int64_t dim() const { return heads * head_dim; }
};

// Odd group counts, one token, both head sizes, rows of more vectors than a lane has in flight,
// more tokens than a slot's blocks take at once.
const Shape kShapes[] = {
    {1, 1, 1, 64, Heads::kKeyOffset, 12}, {3, 1, 2, 128, Heads::kPaired, 0},
    {2, 16, 2, 64, Heads::kPaired, 16},   {3, 48, 6, 128, Heads::kKeyOffset, 12},
    {3, 48, 6, 128, Heads::kPaired, 12},  {2, 33, 3, 128, Heads::kKeyOffset, 0},
    {2, 80, 5, 64, Heads::kKeyOffset, 1}, {1, 80, 4, 128, Heads::kPlain, 12},
    {2, 16, 14, 128, Heads::kPaired, 12}, {2, 16, 32, 64, Heads::kPlain, 12},
    {1, 8192, 1, 64, Heads::kPlain, 12},  {1, 2048, 6, 128, Heads::kKeyOffset, 12},
    {1, 2048, 6, 128, Heads::kPaired, 0},
};

class GatedQkvTest : public CudaTest {
 protected:
  struct Data {
    Shape shape;
    int64_t leaves;
    Twin qkv, cos, sin, q, k, v, inv_rms, dq, dk, dv, dqkv;
    Twin tokens, value_table, u, value_gate, dvalue_rows, du_head, dvalue_gate;
  };

  Data Make(const Shape& s, int64_t leaves) {
    const std::vector<int64_t> dims = {s.slots, s.tokens, s.dim()};
    const std::vector<int64_t> qkv_dims = {s.slots, s.tokens, 3 * s.dim()};
    const int64_t positions = 2 * s.tokens + 3;
    std::vector<double> cosines, sines;
    for (int64_t position = 0; position < positions; ++position) {
      for (int64_t j = 0; j < s.head_dim / 2; ++j) {
        const double angle = position * std::pow(50.0, -2.0 * j / s.head_dim);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    Data d = {s,
              leaves,
              Normal(DType::kBF16, qkv_dims),
              Of(DType::kBF16, {positions, s.head_dim / 2}, cosines),
              Of(DType::kBF16, {positions, s.head_dim / 2}, sines),
              Output(DType::kBF16, dims),
              Output(DType::kBF16, dims),
              Output(DType::kBF16, dims),
              Output(DType::kF32, {s.slots, s.tokens, 2 * s.heads}),
              Normal(DType::kBF16, dims),
              Normal(DType::kBF16, dims),
              Normal(DType::kBF16, dims),
              Output(DType::kBF16, qkv_dims),
              {},
              {},
              {},
              {},
              {},
              {},
              {}};
    if (s.gate == 0) return d;
    d.tokens = Ints({s.slots, s.tokens}, 0, kVocab);
    d.value_table = Normal(DType::kBF16, {kVocab, s.dim()});
    d.u = Normal(DType::kBF16, dims);
    d.value_gate = Normal(DType::kBF16, {s.heads, s.gate}, 0.5);
    d.dvalue_rows = Normal(DType::kBF16, dims);
    d.du_head = Normal(DType::kF32, {s.slots, s.tokens, s.gate});
    d.dvalue_gate = Normal(DType::kF32, {leaves, s.heads * s.gate});
    return d;
  }

  // Forward and backward of slots [first, first + count), with leaves [leaf, leaf + leaves).
  static void RunOps(const Data& d, Side side, int64_t first, int64_t count, int64_t leaf,
                     int64_t leaves, Queue& queue) {
    const auto part = [&](const Twin& twin) { return twin.on(side).Slice(first, count); };
    GatedQkvArgs args;
    args.qkv = part(d.qkv);
    args.heads = static_cast<int>(d.shape.heads);
    args.paired = d.shape.kind == Heads::kPaired;
    args.key_offset = d.shape.kind == Heads::kKeyOffset;
    args.cos = d.cos.on(side);
    args.sin = d.sin.on(side);
    args.q = part(d.q);
    args.k = part(d.k);
    args.v = part(d.v);
    args.inv_rms = part(d.inv_rms);
    GatedQkvGradArgs grad;
    grad.dq = part(d.dq);
    grad.dk = part(d.dk);
    grad.dv = part(d.dv);
    grad.dqkv = part(d.dqkv);
    if (d.shape.gate > 0) {
      args.tokens = part(d.tokens);
      args.value_table = d.value_table.on(side);
      args.u = part(d.u);
      args.value_gate = d.value_gate.on(side);
      grad.dvalue_rows = part(d.dvalue_rows);
      grad.du_head = part(d.du_head);
      grad.dvalue_gate = d.dvalue_gate.on(side).Slice(leaf, leaves);
    }
    GatedQkv(args, queue);
    GatedQkvGrad(args, grad, queue);
  }

  void Compare(const Shape& shape, int64_t leaves) {
    SCOPED_TRACE(::testing::Message()
                 << shape.slots << " slots, " << shape.tokens << " tokens, " << shape.heads
                 << " heads of " << shape.head_dim << ", kind " << static_cast<int>(shape.kind)
                 << ", gate of " << shape.gate << ", " << leaves << " leaves");
    const Data d = Make(shape, leaves);
    Both([&](Side side, Queue& queue) { RunOps(d, side, 0, shape.slots, 0, leaves, queue); });
    ExpectClose(d.q, kStep, 0, "q");
    ExpectClose(d.k, kStep, 0, "k");
    ExpectClose(d.v, kStep, 0, "v");
    ExpectClose(d.inv_rms, 1e-6, 0, "inv_rms");
    ExpectClose(d.dqkv, kStep, 0, "dqkv");
    if (shape.gate == 0) return;
    ExpectClose(d.dvalue_rows, kStep, 0, "dvalue_rows");
    // f32 sums over heads of dv . value: cancellation makes the error relative to their rms.
    ExpectClose(d.du_head, 1e-4, 0, "du_head");
    ExpectClose(d.dvalue_gate, kSum, 0, "dvalue_gate");
  }
};

TEST_F(GatedQkvTest, MatchesCpu) {
  for (const Shape& shape : kShapes) {
    Compare(shape, 1);
    if (shape.slots > 1 && shape.gate > 0) Compare(shape, shape.slots);
  }
}

// Bit for bit: the offset moves what was rotated, and position 0 of each slot keeps its own.
TEST_F(GatedQkvTest, UO_15_KeyOffsetMovesTwoQuartersByOnePosition) {
  const Shape plain = {2, 48, 6, 128, Heads::kPlain, 0};
  Data d = Make(plain, 1);
  RunOps(d, Side::kCuda, 0, 2, 0, 1, cuda());
  const std::vector<double> before = OnHost(d.k.cuda);
  d.shape.kind = Heads::kKeyOffset;
  RunOps(d, Side::kCuda, 0, 2, 0, 1, cuda());
  const std::vector<double> after = OnHost(d.k.cuda);
  for (int64_t i = 0; i < d.k.cuda.size(); ++i) {
    const int64_t feature = i % 128, t = i / plain.dim() % plain.tokens;
    const bool moved = (feature >= 32 && feature < 64) || feature >= 96;
    ASSERT_EQ(after[i], before[moved && t > 0 ? i - plain.dim() : i]) << t << " " << feature;
  }
}

// With all heads of all tokens equal before the rotation, q shows its position alone: the paired
// op's row 11, new head 1, is the plain op's token 10.
TEST_F(GatedQkvTest, UO_14_PairedHeadsPositionsAndRows) {
  const Shape paired = {1, 8, 6, 128, Heads::kPaired, 0}, plain = {1, 16, 1, 128, Heads::kPlain, 0};
  const Data d = Make(paired, 1), positions = Make(plain, 1);
  std::vector<double> same = OnHost(d.qkv.cuda);
  for (size_t i = 0; i < same.size(); ++i) same[i] = same[i % 128];
  Set(d.qkv.cuda, same);
  same.resize(positions.qkv.cuda.size());
  Set(positions.qkv.cuda, same);
  RunOps(d, Side::kCuda, 0, 1, 0, 1, cuda());
  RunOps(positions, Side::kCuda, 0, 1, 0, 1, cuda());
  const Tensor q = d.q.cuda.Reshape({16, 3, 128});
  const auto expect = [&](int64_t row, int64_t head, int64_t position) {
    EXPECT_EQ(OnHost(q.At(row).At(head)), OnHost(positions.q.cuda.At(0).At(position)))
        << row << " " << head;
  };
  expect(11, 1, 10);
  for (int64_t t = 0; t < 8; ++t) {
    expect(2 * t, 0, 2 * t);
    expect(2 * t, 1, 2 * t + 1);
    expect(2 * t, 2, 2 * t);
    expect(2 * t + 1, 0, 2 * t + 1);
    expect(2 * t + 1, 1, 2 * t);
    expect(2 * t + 1, 2, 2 * t + 1);
  }
}

TEST_F(GatedQkvTest, UO_08_ValueGatesStartAtOne) {
  const Shape shape = {2, 16, 6, 128, Heads::kPlain, 12};
  const Data d = Make(shape, 1);
  Set(d.value_gate.cuda, std::vector<double>(d.value_gate.cuda.size()));
  RunOps(d, Side::kCuda, 0, 2, 0, 1, cuda());
  const std::vector<double> qkv = OnHost(d.qkv.cuda), table = OnHost(d.value_table.cuda),
                            tokens = OnHost(d.tokens.cuda), v = OnHost(d.v.cuda);
  for (int64_t i = 0; i < d.v.cuda.size(); ++i) {
    const int64_t row = i / shape.dim(), feature = i % shape.dim();
    const double value = table[static_cast<int64_t>(tokens[row]) * shape.dim() + feature];
    const double sum = qkv[(row * 3 + 2) * shape.dim() + feature] + value;
    ASSERT_EQ(v[i], RoundToBF16(static_cast<float>(sum)));
  }
}

TEST_F(GatedQkvTest, Repeats) {
  for (const Heads kind : {Heads::kPaired, Heads::kKeyOffset}) {
    const Data d = Make({2, 1024, 6, 128, kind, 12}, 2);
    ExpectRepeats([&](Queue& queue) { RunOps(d, Side::kCuda, 0, 2, 0, 2, queue); },
                  {d.q.cuda, d.k.cuda, d.v.cuda, d.inv_rms.cuda, d.dqkv.cuda, d.dvalue_rows.cuda,
                   d.du_head.cuda, d.dvalue_gate.cuda});
  }
}

TEST_F(GatedQkvTest, SlotsAreIndependent) {
  for (const Heads kind : {Heads::kPaired, Heads::kKeyOffset}) {
    const Data d = Make({3, 48, 6, 128, kind, 12}, 3);
    const std::vector<double> rows = OnHost(d.dvalue_rows.cuda), du = OnHost(d.du_head.cuda),
                              leaves = OnHost(d.dvalue_gate.cuda);
    const auto run = [&](int64_t count) {
      Set(d.dvalue_rows.cuda, rows);
      Set(d.du_head.cuda, du);
      Set(d.dvalue_gate.cuda, leaves);
      for (int64_t first = 0; first < 3; first += count) {
        RunOps(d, Side::kCuda, first, count, first, count, cuda());
      }
      return std::vector{Bytes(d.q.cuda),       Bytes(d.k.cuda),          Bytes(d.v.cuda),
                         Bytes(d.inv_rms.cuda), Bytes(d.dqkv.cuda),       Bytes(d.dvalue_rows.cuda),
                         Bytes(d.du_head.cuda), Bytes(d.dvalue_gate.cuda)};
    };
    EXPECT_EQ(run(3), run(1));
  }
}

class GatedSkipTest : public CudaTest {
 protected:
  struct Data {
    Twin x, x0, saved, gate, scalars, y, dy, dsaved, dx0, dgate, dscalars;
  };

  Data Make(const std::vector<int64_t>& dims, int64_t gate, int64_t leaves) {
    return {Normal(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Normal(DType::kBF16, {1, gate}, 0.5),
            Normal(DType::kF32, {kScalars}),
            Output(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Output(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Normal(DType::kF32, {leaves, gate}),
            Normal(DType::kF32, {leaves, kScalars})};
  }

  static GatedSkipArgs Args(const Data& d, Side side, int64_t first, int64_t count) {
    const auto part = [&](const Twin& twin) { return twin.on(side).Slice(first, count); };
    GatedSkipArgs args;
    args.x = part(d.x);
    args.x0 = part(d.x0);
    args.saved = part(d.saved);
    args.gate = d.gate.on(side);
    args.scalars = d.scalars.on(side);
    args.skip = kSkip;
    args.y = part(d.y);
    return args;
  }
  // Forward and backward of slots [first, first + count), with leaves [leaf, leaf + leaves).
  static void RunOps(const Data& d, Side side, int64_t first, int64_t count, int64_t leaf,
                     int64_t leaves, Queue& queue) {
    const auto part = [&](const Twin& twin) { return twin.on(side).Slice(first, count); };
    const GatedSkipArgs args = Args(d, side, first, count);
    GatedSkip(args, queue);
    GatedSkipGradArgs grad;
    grad.dy = part(d.dy);
    grad.dsaved = part(d.dsaved);
    grad.dx0 = part(d.dx0);
    grad.dgate = d.dgate.on(side).Slice(leaf, leaves);
    grad.dscalars = d.dscalars.on(side).Slice(leaf, leaves);
    GatedSkipGrad(args, grad, queue);
  }
};

TEST_F(GatedSkipTest, MatchesCpu) {
  const std::vector<std::vector<int64_t>> shapes = {{1, 1, 64},    {3, 16, 8},    {2, 33, 768},
                                                    {3, 48, 1032}, {1, 8192, 64}, {1, 2048, 768}};
  for (const std::vector<int64_t>& dims : shapes) {
    for (const int64_t gate : {8, 12, 32}) {
      if (gate > dims[2]) continue;
      for (int64_t leaves = 1; leaves <= dims[0]; leaves += std::max<int64_t>(dims[0] - 1, 1)) {
        SCOPED_TRACE(::testing::Message()
                     << dims[0] << " slots, " << dims[1] << " tokens, " << dims[2]
                     << " features, gate of " << gate << ", " << leaves << " leaves");
        const Data d = Make(dims, gate, leaves);
        Both([&](Side side, Queue& queue) { RunOps(d, side, 0, dims[0], 0, leaves, queue); });
        ExpectClose(d.y, kStep, 0, "y");
        ExpectClose(d.dsaved, kStep, 0, "dsaved");
        ExpectClose(d.dx0, kStep, 0, "dx0");
        ExpectClose(d.dgate, kSum, 0, "dgate");
        ExpectClose(d.dscalars, kSum, 0, "dscalars");
      }
    }
  }
}

TEST_F(GatedSkipTest, InPlace) {
  const Data d = Make({2, 48, 768}, 12, 1);
  Both([&](Side side, Queue& queue) {
    GatedSkipArgs args = Args(d, side, 0, 2);
    args.y = args.x;
    GatedSkip(args, queue);
  });
  ExpectClose(d.x, kStep, 0, "y");
}

// x cancels the value's rounding, so that y shows the gate to more than the digits of a bf16.
TEST_F(GatedSkipTest, UO_08_StartsAtTheSigmoidOfItsScalar) {
  const Data d = Make({2, 48, 768}, 12, 1);
  constexpr double kNear = 0.1826171875;  // 187 / 1024
  Set(d.x.cuda, std::vector<double>(d.x.cuda.size(), -kNear));
  Set(d.saved.cuda, std::vector<double>(d.saved.cuda.size(), 1.0));
  Set(d.gate.cuda, std::vector<double>(d.gate.cuda.size()));
  Set(d.scalars.cuda, std::vector<double>(kScalars, -1.5));
  GatedSkip(Args(d, Side::kCuda, 0, 2), cuda());
  for (const double y : OnHost(d.y.cuda)) ASSERT_NEAR(kNear + y, 0.1824255238, 1e-6);
}

TEST_F(GatedSkipTest, Repeats) {
  const Data d = Make({2, 2048, 768}, 12, 2);
  ExpectRepeats([&](Queue& queue) { RunOps(d, Side::kCuda, 0, 2, 0, 2, queue); },
                {d.y.cuda, d.dsaved.cuda, d.dx0.cuda, d.dgate.cuda, d.dscalars.cuda});
}

TEST_F(GatedSkipTest, SlotsAreIndependent) {
  const Data d = Make({3, 48, 768}, 12, 3);
  const std::vector<double> dx0 = OnHost(d.dx0.cuda), dgate = OnHost(d.dgate.cuda),
                            dscalars = OnHost(d.dscalars.cuda);
  const auto run = [&](int64_t count) {
    Set(d.dx0.cuda, dx0);
    Set(d.dgate.cuda, dgate);
    Set(d.dscalars.cuda, dscalars);
    for (int64_t first = 0; first < 3; first += count) {
      RunOps(d, Side::kCuda, first, count, first, count, cuda());
    }
    return std::vector{Bytes(d.y.cuda), Bytes(d.dsaved.cuda), Bytes(d.dx0.cuda),
                       Bytes(d.dgate.cuda), Bytes(d.dscalars.cuda)};
  };
  EXPECT_EQ(run(3), run(1));
}

}  // namespace
}  // namespace kernels
