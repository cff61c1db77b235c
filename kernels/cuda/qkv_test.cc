#include "kernels/ops/qkv.h"

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
constexpr int kLambda = 2;

struct Shape {
  int64_t slots, tokens, heads, head_dim;
  bool norm_value = false;
  bool f32_angles = false;
  int64_t dim() const { return heads * head_dim; }
};

// Odd group counts, one token, both head sizes, more groups than a slot's blocks take at once.
const Shape kShapes[] = {{1, 1, 1, 64},   {2, 16, 2, 64},  {3, 48, 6, 128},
                         {2, 33, 3, 128}, {1, 80, 4, 128}, {1, 2048, 6, 128}};
// With a normed v, with f32 tables, and with both.
const Shape kOtherKernels[] = {{2, 33, 3, 64, true, true},   {1, 16, 2, 64, true, false},
                               {2, 48, 6, 128, true, false}, {2, 80, 3, 128, false, true},
                               {3, 48, 8, 128, true, true},  {1, 2048, 8, 128, true, true}};

class QkvTest : public CudaTest {
 protected:
  struct Data {
    Shape shape;
    int64_t leaves;
    bool table;
    Twin qkv, cos, sin, tokens, value_table, scalars, q, k, v, inv_rms;
    Twin dq, dk, dv, dqkv, dvalue_rows, dscalars;
  };

  Data Make(const Shape& s, int64_t leaves, bool table) {
    const std::vector<int64_t> dims = {s.slots, s.tokens, s.dim()};
    const std::vector<int64_t> qkv_dims = {s.slots, s.tokens, 3 * s.dim()};
    std::vector<double> cosines, sines;
    for (int64_t t = 0; t < s.tokens + 3; ++t) {
      for (int64_t j = 0; j < s.head_dim / 2; ++j) {
        const double angle = t * std::pow(50.0, -2.0 * j / s.head_dim);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    const std::vector<int64_t> angles = {s.tokens + 3, s.head_dim / 2};
    const DType angle = s.f32_angles ? DType::kF32 : DType::kBF16;
    Data d = {s,
              leaves,
              table,
              Normal(DType::kBF16, qkv_dims),
              Of(angle, angles, cosines),
              Of(angle, angles, sines),
              Ints({s.slots, s.tokens}, 0, kVocab),
              {},
              Normal(DType::kF32, {kScalars}),
              Output(DType::kBF16, dims),
              Output(DType::kBF16, dims),
              Output(DType::kBF16, dims),
              Output(DType::kF32, {s.slots, s.tokens, (s.norm_value ? 3 : 2) * s.heads}),
              Normal(DType::kBF16, dims),
              Normal(DType::kBF16, dims),
              Normal(DType::kBF16, dims),
              Output(DType::kBF16, qkv_dims),
              {},
              Normal(DType::kF32, {leaves, kScalars})};
    if (!table) return d;
    d.value_table = Normal(DType::kBF16, {kVocab, s.dim()});
    d.dvalue_rows = Normal(DType::kBF16, dims);
    return d;
  }

  static QkvArgs Args(const Data& d, Side side, int64_t first, int64_t count) {
    QkvArgs args;
    args.qkv = d.qkv.on(side).Slice(first, count);
    args.heads = static_cast<int>(d.shape.heads);
    args.cos = d.cos.on(side);
    args.sin = d.sin.on(side);
    args.tokens = d.tokens.on(side).Slice(first, count);
    args.value_table = d.value_table.on(side);
    args.scalars = d.scalars.on(side);
    args.value_lambda = kLambda;
    args.q = d.q.on(side).Slice(first, count);
    args.k = d.k.on(side).Slice(first, count);
    args.v = d.v.on(side).Slice(first, count);
    args.inv_rms = d.inv_rms.on(side).Slice(first, count);
    args.norm_value = d.shape.norm_value;
    return args;
  }
  // Forward and backward of slots [first, first + count).
  static void Run(const Data& d, Side side, int64_t first, int64_t count, Tensor dscalars,
                  Queue& queue) {
    const QkvArgs args = Args(d, side, first, count);
    QkvSplitNormRotary(args, queue);
    const auto part = [&](const Twin& twin) { return twin.on(side).Slice(first, count); };
    QkvSplitNormRotaryGrad(args,
                           {.dq = part(d.dq),
                            .dk = part(d.dk),
                            .dv = part(d.dv),
                            .dqkv = part(d.dqkv),
                            .dvalue_rows = d.table ? part(d.dvalue_rows) : Tensor(),
                            .dscalars = dscalars},
                           queue);
  }

  void ExpectIndependentSlots(const Shape& shape);

  void Compare(const Shape& shape, int64_t leaves, bool table) {
    SCOPED_TRACE(::testing::Message()
                 << shape.slots << " slots, " << shape.tokens << " tokens, " << shape.heads
                 << " heads of " << shape.head_dim << ", " << leaves << " leaves, table " << table
                 << ", norm_value " << shape.norm_value << ", f32 angles " << shape.f32_angles);
    const Data d = Make(shape, leaves, table);
    Both(
        [&](Side side, Queue& queue) { Run(d, side, 0, shape.slots, d.dscalars.on(side), queue); });
    ExpectClose(d.q, kStep, 0, "q");
    ExpectClose(d.k, kStep, 0, "k");
    ExpectClose(d.v, kStep, 0, "v");
    ExpectClose(d.inv_rms, 1e-6, 0, "inv_rms");
    ExpectClose(d.dqkv, kStep, 0, "dqkv");
    if (table) ExpectClose(d.dvalue_rows, kStep, 0, "dvalue_rows");
    ExpectClose(d.dscalars, kSum, 0, "dscalars");
  }
};

TEST_F(QkvTest, MatchesCpu) {
  for (const Shape& shape : kShapes) {
    for (const bool table : {false, true}) {
      Compare(shape, 1, table);
      if (shape.slots > 1) Compare(shape, shape.slots, table);
    }
  }
}

TEST_F(QkvTest, NormedValuesAndF32Angles) {
  for (const Shape& shape : kOtherKernels) {
    for (const bool table : {false, true}) {
      Compare(shape, 1, table);
      if (shape.slots > 1) Compare(shape, shape.slots, table);
    }
  }
}

TEST_F(QkvTest, Repeats) {
  const Data d = Make({2, 2048, 6, 128}, 2, true);
  const std::vector<float> zeros(d.dscalars.cuda.size());
  const std::vector<uint16_t> zero_rows(d.dvalue_rows.cuda.size());
  ExpectRepeats(
      [&](Queue& queue) {
        queue.Upload(zeros.data(), d.dscalars.cuda);
        queue.Upload(zero_rows.data(), d.dvalue_rows.cuda);
        Run(d, Side::kCuda, 0, 2, d.dscalars.cuda, queue);
      },
      {d.q.cuda, d.k.cuda, d.v.cuda, d.inv_rms.cuda, d.dqkv.cuda, d.dvalue_rows.cuda,
       d.dscalars.cuda});
}

TEST_F(QkvTest, SlotsAreIndependent) {
  ExpectIndependentSlots({3, 48, 6, 128});
  ExpectIndependentSlots({3, 48, 8, 128, true, true});
}

void QkvTest::ExpectIndependentSlots(const Shape& shape) {
  const Data d = Make(shape, 3, true);
  const std::vector<Tensor> outputs = {d.q.cuda,    d.k.cuda,           d.v.cuda,
                                       d.dqkv.cuda, d.dvalue_rows.cuda, d.dscalars.cuda};
  const std::vector<double> rows = OnHost(d.dvalue_rows.cuda), leaves = OnHost(d.dscalars.cuda);
  const auto run = [&](int64_t count) {
    Set(d.dvalue_rows.cuda, rows);
    Set(d.dscalars.cuda, leaves);
    for (int64_t first = 0; first < 3; first += count) {
      Run(d, Side::kCuda, first, count, d.dscalars.cuda.Slice(first, count), cuda());
    }
    std::vector<std::vector<uint8_t>> bytes;
    for (const Tensor& output : outputs) bytes.push_back(Bytes(output));
    return bytes;
  };
  EXPECT_EQ(run(3), run(1));
}

class HeadGateTest : public CudaTest {
 protected:
  struct Data {
    Twin o, u, gate_w, y, dy, d_o, du_head, dgate_w;
  };

  Data Make(const Shape& s, int64_t k, int64_t leaves) {
    const std::vector<int64_t> dims = {s.slots, s.tokens, s.dim()};
    return {Normal(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Normal(DType::kBF16, {s.heads, k}, 0.5),
            Output(DType::kBF16, dims),
            Normal(DType::kBF16, dims),
            Output(DType::kBF16, dims),
            Output(DType::kF32, {s.slots, s.tokens, k}),
            Normal(DType::kF32, {leaves, s.heads * k})};
  }
  static void Run(const Data& d, Side side, int64_t first, int64_t count, Tensor dgate_w,
                  Queue& queue) {
    const auto part = [&](const Twin& twin) { return twin.on(side).Slice(first, count); };
    const Tensor gate_w = d.gate_w.on(side);
    HeadGate(part(d.o), part(d.u), gate_w, part(d.y), queue);
    HeadGateGrad({.dy = part(d.dy),
                  .o = part(d.o),
                  .u = part(d.u),
                  .gate_w = gate_w,
                  .do_ = part(d.d_o),
                  .du_head = part(d.du_head),
                  .dgate_w = dgate_w},
                 queue);
  }
};

TEST_F(HeadGateTest, MatchesCpu) {
  for (const Shape& shape : kShapes) {
    for (const int64_t k : {12, 16, 1}) {
      for (const int64_t leaves : {int64_t{1}, shape.slots}) {
        SCOPED_TRACE(::testing::Message() << shape.slots << " slots, " << shape.tokens
                                          << " tokens, k " << k << ", leaves " << leaves);
        const Data d = Make(shape, k, leaves);
        Both([&](Side side, Queue& queue) {
          Run(d, side, 0, shape.slots, d.dgate_w.on(side), queue);
        });
        ExpectClose(d.y, kStep, 0, "y");
        ExpectClose(d.d_o, kStep, 0, "do");
        // f32 sums over heads of dy . o: cancellation makes the error relative to their rms.
        ExpectClose(d.du_head, 1e-4, 0, "du_head");
        ExpectClose(d.dgate_w, kSum, 0, "dgate_w");
      }
    }
  }
}

// More vectors in a row than a lane has in flight, and a head for many lanes.
TEST_F(HeadGateTest, ManyHeads) {
  for (const Shape& shape : {Shape{2, 16, 32, 64}, Shape{1, 16, 14, 128}}) {
    const Data d = Make(shape, 12, 1);
    Both([&](Side side, Queue& queue) { Run(d, side, 0, shape.slots, d.dgate_w.on(side), queue); });
    ExpectClose(d.y, kStep, 0, "y");
    ExpectClose(d.d_o, kStep, 0, "do");
    ExpectClose(d.du_head, 1e-4, 0, "du_head");
    ExpectClose(d.dgate_w, kSum, 0, "dgate_w");
  }
}

TEST_F(HeadGateTest, GradInPlace) {
  const Data d = Make({2, 48, 6, 128}, 12, 1);
  Both([&](Side side, Queue& queue) {
    HeadGateGrad({.dy = d.dy.on(side),
                  .o = d.o.on(side),
                  .u = d.u.on(side),
                  .gate_w = d.gate_w.on(side),
                  .do_ = d.dy.on(side),
                  .du_head = d.du_head.on(side),
                  .dgate_w = d.dgate_w.on(side)},
                 queue);
  });
  ExpectClose(d.dy, kStep, 0, "do");
  ExpectClose(d.du_head, 1e-4, 0, "du_head");
}

TEST_F(HeadGateTest, Repeats) {
  const Data d = Make({2, 2048, 6, 128}, 12, 1);
  const std::vector<float> zeros(d.dgate_w.cuda.size());
  ExpectRepeats(
      [&](Queue& queue) {
        queue.Upload(zeros.data(), d.dgate_w.cuda);
        Run(d, Side::kCuda, 0, 2, d.dgate_w.cuda, queue);
      },
      {d.y.cuda, d.d_o.cuda, d.du_head.cuda, d.dgate_w.cuda});
}

TEST_F(HeadGateTest, SlotsAreIndependent) {
  const Data d = Make({3, 48, 6, 128}, 12, 3);
  const std::vector<double> leaves = OnHost(d.dgate_w.cuda);
  const auto run = [&](int64_t count) {
    Set(d.dgate_w.cuda, leaves);
    for (int64_t first = 0; first < 3; first += count) {
      Run(d, Side::kCuda, first, count, d.dgate_w.cuda.Slice(first, count), cuda());
    }
    return std::vector{Bytes(d.y.cuda), Bytes(d.d_o.cuda), Bytes(d.du_head.cuda),
                       Bytes(d.dgate_w.cuda)};
  };
  EXPECT_EQ(run(3), run(1));
}

}  // namespace
}  // namespace kernels
