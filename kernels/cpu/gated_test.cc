#include "kernels/ops/gated.h"

#include <cmath>
#include <ostream>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/qkv_testing.h"
#include "kernels/ops/norm.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::RandomTokens;

constexpr int kVocabulary = 11;

enum class Heads { kPlain, kPaired, kKeyOffset };

struct Shape {
  int64_t slots, tokens;
  int heads;
  int64_t head_dim;
  Heads kind;
  int64_t gate;  // features that the value gate reads; 0: no table

  int64_t dim() const { return heads * head_dim; }
  int64_t rows() const { return slots * tokens; }
  bool table() const { return gate > 0; }
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.slots << " slots, " << s.tokens << " tokens, " << s.heads << " heads of " << s.head_dim
       << (s.kind == Heads::kPaired      ? ", paired"
           : s.kind == Heads::kKeyOffset ? ", key offset"
                                         : "")
       << ", gate of " << s.gate;
}

struct Data {
  Data(const Shape& s, int64_t leaves)
      : dims{s.slots, s.tokens, s.dim()},
        gate_size(s.table() ? s.gate : 1),
        qkv(RandomTensor(DType::kBF16, {s.slots, s.tokens, 3 * s.dim()}, 1)),
        cos(DType::kBF16, {2 * s.tokens + 3, s.head_dim / 2}),
        sin(DType::kBF16, {2 * s.tokens + 3, s.head_dim / 2}),
        tokens(RandomTokens({s.slots, s.tokens}, kVocabulary, 2)),
        table(RandomTensor(DType::kBF16, {kVocabulary, s.dim()}, 3)),
        u(RandomTensor(DType::kBF16, dims, 4)),
        value_gate(RandomTensor(DType::kBF16, {s.heads, gate_size}, 9, 0.5)),
        dq(RandomTensor(DType::kBF16, dims, 5)),
        dk(RandomTensor(DType::kBF16, dims, 6)),
        dv(RandomTensor(DType::kBF16, dims, 7)),
        q(DType::kBF16, dims),
        k(DType::kBF16, dims),
        v(DType::kBF16, dims),
        inv_rms(DType::kF32, {s.slots, s.tokens, 2 * s.heads}),
        dqkv(DType::kBF16, qkv.get().dims()),
        dvalue_rows(RandomTensor(DType::kBF16, dims, 8)),
        du_head(RandomTensor(DType::kF32, {s.slots, s.tokens, gate_size}, 10)),
        dvalue_gate(DType::kF32, {leaves, s.heads * gate_size}) {
    const int64_t half = s.head_dim / 2;
    Doubles cosines, sines;
    for (int64_t position = 0; position < 2 * s.tokens + 3; ++position) {
      for (int64_t j = 0; j < half; ++j) {
        const double angle = position * std::pow(50.0, -static_cast<double>(j) / half);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    cos.Set(cosines);
    sin.Set(sines);
  }

  std::vector<Tensor> Outputs() const {
    return {q, k, v, inv_rms, dqkv, dvalue_rows, du_head, dvalue_gate};
  }

  std::vector<int64_t> dims;
  int64_t gate_size;
  HostTensor qkv, cos, sin, tokens, table, u, value_gate, dq, dk, dv;
  HostTensor q, k, v, inv_rms, dqkv, dvalue_rows, du_head, dvalue_gate;
};

// Forward and backward of the slots [begin, begin + count), with `leaf` of the gate's gradient.
void RunOps(const Shape& s, const Data& data, int threads, int64_t begin, int64_t count,
            Tensor leaf) {
  const auto part = [&](const HostTensor& tensor) { return tensor.get().Slice(begin, count); };
  GatedQkvArgs args;
  args.qkv = part(data.qkv);
  args.heads = s.heads;
  args.paired = s.kind == Heads::kPaired;
  args.key_offset = s.kind == Heads::kKeyOffset;
  args.cos = data.cos;
  args.sin = data.sin;
  args.q = part(data.q);
  args.k = part(data.k);
  args.v = part(data.v);
  args.inv_rms = part(data.inv_rms);
  GatedQkvGradArgs grad;
  grad.dq = part(data.dq);
  grad.dk = part(data.dk);
  grad.dv = part(data.dv);
  grad.dqkv = part(data.dqkv);
  if (s.table()) {
    args.tokens = part(data.tokens);
    args.value_table = data.table;
    args.u = part(data.u);
    args.value_gate = data.value_gate;
    grad.dvalue_rows = part(data.dvalue_rows);
    grad.du_head = part(data.du_head);
    grad.dvalue_gate = leaf;
  }
  const auto queue = MakeCpuQueue(threads);
  GatedQkv(args, *queue);
  GatedQkvGrad(args, grad, *queue);
}

void RunOps(const Shape& s, const Data& data, int threads) {
  RunOps(s, data, threads, 0, s.slots, data.dvalue_gate);
}

// The definition in float64. `values` are the table's rows of the tokens.
struct Oracle {
  Oracle(const Shape& s, const Data& data)
      : s(s),
        qkv(data.qkv.ToDouble()),
        cos(data.cos.ToDouble()),
        sin(data.sin.ToDouble()),
        u(data.u.ToDouble()),
        value_gate(data.value_gate.ToDouble()) {
    const Doubles table = data.table.ToDouble();
    for (const double token : data.tokens.ToDouble()) {
      const auto row = table.begin() + static_cast<int64_t>(token) * s.dim();
      values.insert(values.end(), row, row + s.dim());
    }
  }

  // q, k, v one behind the other.
  Doubles Forward() const {
    Doubles out(3 * s.rows() * s.dim());
    for (int64_t row = 0; row < s.rows(); ++row) {
      for (int64_t head = 0; head < s.heads; ++head) {
        const int64_t at = row * s.dim() + head * s.head_dim;
        Rotated(row, 0, head, &out[at]);
        Rotated(row, 1, head, &out[s.rows() * s.dim() + at]);
        Value(row, head, &out[2 * s.rows() * s.dim() + at]);
      }
    }
    if (s.kind == Heads::kKeyOffset) OffsetKeys(&out[s.rows() * s.dim()]);
    return out;
  }

  // `part` 0 is q, 1 is k.
  void Rotated(int64_t row, int64_t part, int64_t head, double* y) const {
    const double* x = &qkv[(row * 3 + part) * s.dim() + head * s.head_dim];
    double mean = 0;
    for (int64_t i = 0; i < s.head_dim; ++i) mean += x[i] * x[i] / s.head_dim;
    const double scale = 1 / std::sqrt(mean + kRmsEpsilon);
    const int64_t half = s.head_dim / 2;
    const int64_t t = row % s.tokens;
    const int64_t position = s.kind == Heads::kPaired ? 2 * t + head % 2 : t;
    for (int64_t i = 0; i < half; ++i) {
      const double c = cos[position * half + i], n = sin[position * half + i];
      y[2 * i] = scale * (x[2 * i] * c + x[2 * i + 1] * n);
      y[2 * i + 1] = scale * (x[2 * i + 1] * c - x[2 * i] * n);
    }
  }

  void OffsetKeys(double* k) const {
    const Doubles before(k, k + s.rows() * s.dim());
    for (int64_t i = 0; i < s.rows() * s.dim(); ++i) {
      const int64_t t = i / s.dim() % s.tokens, quarter = i % s.head_dim / (s.head_dim / 4);
      if (t > 0 && (quarter == 1 || quarter == 3)) k[i] = before[i - s.dim()];
    }
  }

  double Gamma(int64_t row, int64_t head) const {
    double dot = 0;
    for (int64_t i = 0; i < s.gate; ++i)
      dot += value_gate[head * s.gate + i] * u[row * s.dim() + i];
    return 2 / (1 + std::exp(-dot));
  }

  void Value(int64_t row, int64_t head, double* y) const {
    const double gamma = s.table() ? Gamma(row, head) : 0;
    for (int64_t i = 0; i < s.head_dim; ++i) {
      const int64_t in_row = head * s.head_dim + i;
      y[i] = qkv[(row * 3 + 2) * s.dim() + in_row] + gamma * values[row * s.dim() + in_row];
    }
  }

  const Shape& s;
  Doubles qkv, cos, sin, u, value_gate, values;
};

class GatedQkvTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GatedQkvTest, ForwardMatchesFloat64) {
  const Shape& s = GetParam();
  const Data data(s, 1);
  RunOps(s, data, 2);
  // The sums of squares and the products are in f32: 2^-16 covers them where two terms cancel.
  ExpectWithinBf16Steps(Joined(data.q, data.k, data.v), Oracle(s, data).Forward(), 0.5,
                        std::ldexp(1.0, -16), "q, k, v");
}

TEST_P(GatedQkvTest, ThreadsSlotsAndLeavesChangeNoBit) {
  const Shape& s = GetParam();
  const Data want(s, s.slots);
  RunOps(s, want, 1);
  for (int threads : {2, 3}) {
    const Data got(s, s.slots);
    RunOps(s, got, threads);
    ExpectSameBits(got.Outputs(), want.Outputs(), "threads");
  }
  const Data alone(s, s.slots);
  for (int64_t slot = 0; slot < s.slots; ++slot) {
    RunOps(s, alone, 2, slot, 1, alone.dvalue_gate.get().Slice(slot, 1));
  }
  ExpectSameBits(alone.Outputs(), want.Outputs(), "slots alone");

  // One leaf: the slots' sums in slot order.
  const Data one(s, 1);
  RunOps(s, one, 2);
  const int64_t size = one.dvalue_gate.get().size();
  for (int64_t i = 0; i < size; ++i) {
    float sum = 0;
    for (int64_t slot = 0; slot < s.slots; ++slot) {
      sum += want.dvalue_gate.get().f32()[slot * size + i];
    }
    EXPECT_EQ(one.dvalue_gate.get().f32()[i], sum) << i;
  }
}

// 70 tokens are two tasks: the offset crosses from one to the other.
INSTANTIATE_TEST_SUITE_P(Shapes, GatedQkvTest,
                         ::testing::Values(Shape{1, 1, 1, 8, Heads::kPlain, 3},
                                           Shape{3, 1, 2, 16, Heads::kKeyOffset, 0},
                                           Shape{2, 3, 2, 24, Heads::kPaired, 5},
                                           Shape{3, 70, 3, 16, Heads::kKeyOffset, 12},
                                           Shape{2, 65, 4, 64, Heads::kPaired, 0},
                                           Shape{3, 70, 6, 128, Heads::kKeyOffset, 12},
                                           Shape{2, 48, 6, 128, Heads::kPaired, 12},
                                           Shape{2, 16, 6, 128, Heads::kPlain, 12}));

// Small shapes, since there are two float64 forward passes for each element.
class GatedQkvGradTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GatedQkvGradTest, MatchesFiniteDifferences) {
  const Shape& s = GetParam();
  const Data data(s, 1);
  const Doubles dy = Joined(data.dq, data.dk, data.dv);
  // What is added to.
  Doubles rows = data.dvalue_rows.ToDouble(), du = data.du_head.ToDouble();
  Doubles gate = RandomTensor(DType::kF32, data.dvalue_gate.get().dims(), 11).ToDouble();
  data.dvalue_gate.Set(gate);
  RunOps(s, data, 2);
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
  Doubles dqkv;
  for (double& x : oracle.qkv) dqkv.push_back(derivative(x));
  // The f32 arithmetic cancels in dn - n * mean(n dn): 2^-16 of values near 1. The finite
  // differences are good to 1e-7.
  ExpectWithinBf16Steps(data.dqkv.ToDouble(), dqkv, 0.5, std::ldexp(8.0, -16), "dqkv");
  if (s.table()) {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += derivative(oracle.values[i]);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] += derivative(oracle.value_gate[i]);
    for (int64_t i = 0; i < s.rows() * s.gate; ++i) {
      du[i] += derivative(oracle.u[i / s.gate * s.dim() + i % s.gate]);
    }
  }
  // Without a table they keep what they had.
  ExpectWithinBf16Steps(data.dvalue_rows.ToDouble(), rows, 0.5, std::ldexp(1.0, -16),
                        "dvalue_rows");
  ExpectNear(data.du_head.ToDouble(), du, 1e-5, 1e-4, "du_head");
  ExpectNear(data.dvalue_gate.ToDouble(), gate, 1e-5, 1e-4, "dvalue_gate");
}

INSTANTIATE_TEST_SUITE_P(Shapes, GatedQkvGradTest,
                         ::testing::Values(Shape{1, 1, 1, 8, Heads::kKeyOffset, 8},
                                           Shape{2, 1, 2, 16, Heads::kPaired, 12},
                                           Shape{2, 3, 2, 24, Heads::kPaired, 0},
                                           Shape{3, 5, 2, 16, Heads::kKeyOffset, 12},
                                           Shape{2, 4, 3, 16, Heads::kPlain, 1},
                                           Shape{1, 70, 1, 8, Heads::kKeyOffset, 5},
                                           Shape{1, 3, 1, 64, Heads::kKeyOffset, 0},
                                           Shape{1, 2, 2, 128, Heads::kPaired, 12},
                                           Shape{1, 3, 1, 128, Heads::kKeyOffset, 12}));

// All heads of all tokens are equal before the rotation, so that q shows its position alone.
TEST(GatedQkvFacts, UO_14_PairedHeadsPositionsAndRows) {
  const Shape s = {1, 8, 6, 128, Heads::kPaired, 0};
  const Data data(s, 1);
  BF16* qkv = data.qkv.get().bf16();
  for (int64_t i = 0; i < data.qkv.get().size(); ++i) qkv[i] = qkv[i % s.head_dim];
  RunOps(s, data, 1);
  // Attention reads the same memory as [2 T, 3, 128].
  const Tensor q = data.q.get().Reshape({2 * s.tokens, 3, s.head_dim});
  EXPECT_EQ(q.At(11).At(1).data(), data.q.get().At(0).At(5).Reshape({6, 128}).At(4).data());
  // The position at which the definition gives this row, by least squares.
  const auto position = [&](int64_t row, int64_t head) {
    const Shape plain = {1, 2 * s.tokens, 1, s.head_dim, Heads::kPlain, 0};
    Data tables(plain, 1);
    Doubles all = data.qkv.ToDouble();
    all.resize(3 * plain.rows() * s.head_dim);
    tables.qkv.Set(all);
    const Doubles want = Oracle(plain, tables).Forward();
    int64_t best = -1;
    double best_distance = 1e-2;  // squared roundings of 128 values near 1 are 128 * 2^-18
    for (int64_t candidate = 0; candidate < 2 * s.tokens; ++candidate) {
      double distance = 0;
      for (int64_t i = 0; i < s.head_dim; ++i) {
        const double y = ToFloat(q.At(row).At(head).bf16()[i]);
        distance += std::pow(y - want[candidate * s.head_dim + i], 2);
      }
      if (distance < best_distance) best = candidate, best_distance = distance;
    }
    return best;
  };
  EXPECT_EQ(position(11, 1), 10);
  for (int64_t t = 0; t < s.tokens; ++t) {
    EXPECT_EQ(position(2 * t, 0), 2 * t);
    EXPECT_EQ(position(2 * t, 1), 2 * t + 1);
    EXPECT_EQ(position(2 * t, 2), 2 * t);
    EXPECT_EQ(position(2 * t + 1, 0), 2 * t + 1);
    EXPECT_EQ(position(2 * t + 1, 1), 2 * t);
    EXPECT_EQ(position(2 * t + 1, 2), 2 * t + 1);
  }
}

TEST(GatedQkvFacts, UO_15_KeyOffsetMovesTwoQuartersByOnePosition) {
  const Shape plain = {2, 70, 6, 128, Heads::kPlain, 12};
  Shape offset = plain;
  offset.kind = Heads::kKeyOffset;
  const Data without(plain, 1), with(offset, 1);
  RunOps(plain, without, 2);
  RunOps(offset, with, 2);
  ExpectSameBits({with.q, with.v}, {without.q, without.v}, "q and v");
  const BF16* before = without.k.get().bf16();
  const BF16* after = with.k.get().bf16();
  for (int64_t row = 0; row < plain.rows(); ++row) {
    for (int64_t i = 0; i < plain.dim(); ++i) {
      const int64_t feature = i % 128;
      const bool moved = (feature >= 32 && feature < 64) || feature >= 96;
      const int64_t from = moved && row % plain.tokens > 0 ? row - 1 : row;
      ASSERT_EQ(after[row * plain.dim() + i], before[from * plain.dim() + i]) << row << " " << i;
    }
  }
}

TEST(GatedQkvFacts, UO_08_ValueGatesStartAtOne) {
  const Shape s = {2, 5, 6, 128, Heads::kPlain, 12};
  const Data data(s, 1);
  data.value_gate.Set(Doubles(data.value_gate.get().size()));
  RunOps(s, data, 1);
  const Oracle oracle(s, data);
  for (int64_t row = 0; row < s.rows(); ++row) {
    for (int64_t i = 0; i < s.dim(); ++i) {
      const double sum = oracle.qkv[(row * 3 + 2) * s.dim() + i] + oracle.values[row * s.dim() + i];
      ASSERT_EQ(data.v.get().bf16()[row * s.dim() + i], ToBF16(static_cast<float>(sum)));
    }
  }
}

TEST(GatedQkvDeathTest, NamesWhatIsWrong) {
  const Shape s = {1, 4, 1, 8, Heads::kPlain, 3};
  const Data data(s, 1);
  data.tokens.get().i32()[2] = kVocabulary;
  EXPECT_DEATH(RunOps(s, data, 1), "token 11 at row 2");
  const Shape odd = {1, 4, 3, 8, Heads::kPaired, 0};
  EXPECT_DEATH(RunOps(odd, Data(odd, 1), 1), "3 heads in pairs");
}

}  // namespace
}  // namespace kernels
