#include "kernels/ops/qkv.h"

#include <cmath>
#include <utility>
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
constexpr int kScalars = 5;
constexpr int kLambda = 2;

struct Data {
  Data(const Case& c, int64_t leaves)
      : dims{c.slots, c.tokens, c.dim()},
        qkv(RandomTensor(DType::kBF16, {c.slots, c.tokens, 3 * c.dim()}, 1)),
        cos(c.f32_angles ? DType::kF32 : DType::kBF16, {c.tokens + 3, c.head_dim / 2}),
        sin(cos.get().dtype(), {c.tokens + 3, c.head_dim / 2}),
        tokens(RandomTokens({c.slots, c.tokens}, kVocabulary, 2)),
        table(RandomTensor(DType::kBF16, {kVocabulary, c.dim()}, 3)),
        scalars(RandomTensor(DType::kF32, {kScalars}, 4)),
        dq(RandomTensor(DType::kBF16, dims, 5)),
        dk(RandomTensor(DType::kBF16, dims, 6)),
        dv(RandomTensor(DType::kBF16, dims, 7)),
        q(DType::kBF16, dims),
        k(DType::kBF16, dims),
        v(DType::kBF16, dims),
        inv_rms(DType::kF32, {c.slots, c.tokens, (c.norm_value ? 3 : 2) * c.heads}),
        dqkv(DType::kBF16, qkv.get().dims()),
        dvalue_rows(RandomTensor(DType::kBF16, dims, 8)),
        dscalars(DType::kF32, {leaves, kScalars}) {
    const int64_t half = c.head_dim / 2;
    Doubles cosines, sines;
    for (int64_t t = 0; t < c.tokens + 3; ++t) {
      for (int64_t j = 0; j < half; ++j) {
        const double angle = t * std::pow(50.0, -static_cast<double>(j) / half);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    cos.Set(cosines);
    sin.Set(sines);
  }

  std::vector<Tensor> Outputs() const { return {q, k, v, inv_rms, dqkv, dvalue_rows, dscalars}; }

  std::vector<int64_t> dims;
  HostTensor qkv, cos, sin, tokens, table, scalars, dq, dk, dv;
  HostTensor q, k, v, inv_rms, dqkv, dvalue_rows, dscalars;
};

// The slots [begin, begin + count), with `leaf` of the scalars' gradient.
void RunQkv(const Case& c, const Data& data, int threads, int64_t begin, int64_t count,
            Tensor leaf) {
  const auto part = [&](const HostTensor& tensor) { return tensor.get().Slice(begin, count); };
  QkvArgs args;
  args.qkv = part(data.qkv);
  args.heads = c.heads;
  args.cos = data.cos;
  args.sin = data.sin;
  args.tokens = part(data.tokens);
  if (c.table) args.value_table = data.table;
  args.scalars = data.scalars;
  args.value_lambda = kLambda;
  args.q = part(data.q);
  args.k = part(data.k);
  args.v = part(data.v);
  args.inv_rms = part(data.inv_rms);
  args.norm_value = c.norm_value;
  const auto queue = MakeCpuQueue(threads);
  QkvSplitNormRotary(args, *queue);
  QkvSplitNormRotaryGrad(args,
                         {.dq = part(data.dq),
                          .dk = part(data.dk),
                          .dv = part(data.dv),
                          .dqkv = part(data.dqkv),
                          .dvalue_rows = c.table ? part(data.dvalue_rows) : Tensor(),
                          .dscalars = leaf},
                         *queue);
}

void RunQkv(const Case& c, const Data& data, int threads) {
  RunQkv(c, data, threads, 0, c.slots, data.dscalars);
}

// The outputs q, k, v one behind the other, from the definition.
struct QkvOracle {
  QkvOracle(const Case& c, const Data& data)
      : c(c),
        qkv(data.qkv.ToDouble()),
        cos(data.cos.ToDouble()),
        sin(data.sin.ToDouble()),
        table(data.table.ToDouble()),
        scalars(data.scalars.ToDouble()),
        tokens(data.tokens.ToDouble()) {}

  Doubles Forward() const {
    Doubles out(3 * c.rows() * c.dim());
    for (int64_t row = 0; row < c.rows(); ++row) {
      for (int64_t head = 0; head < 2 * c.heads; ++head) {
        const bool is_k = head >= c.heads;
        Head(row, head, &out[(is_k * c.rows() + row) * c.dim() + head % c.heads * c.head_dim]);
      }
      for (int64_t i = 0; i < c.dim(); ++i) {
        double& v = out[(2 * c.rows() + row) * c.dim() + i];
        v = scalars[kLambda] * qkv[(row * 3 + 2) * c.dim() + i];
        if (c.norm_value) v *= InvRms(row, 2 * c.heads + i / c.head_dim);
        if (!c.table) continue;
        v += scalars[kLambda + 1] * table[static_cast<int64_t>(tokens[row]) * c.dim() + i];
      }
    }
    return out;
  }

  double InvRms(int64_t row, int64_t head) const {
    const double* x = &qkv[row * 3 * c.dim() + head * c.head_dim];
    double mean = 0;
    for (int64_t i = 0; i < c.head_dim; ++i) mean += x[i] * x[i] / c.head_dim;
    return 1 / std::sqrt(mean + kRmsEpsilon);
  }

  void Head(int64_t row, int64_t head, double* y) const {
    const double* x = &qkv[row * 3 * c.dim() + head * c.head_dim];
    const double scale = InvRms(row, head);
    const int64_t half = c.head_dim / 2;
    for (int64_t j = 0; j < half; ++j) {
      const double cosine = cos[row % c.tokens * half + j];
      const double sine = sin[row % c.tokens * half + j];
      y[j] = scale * (x[j] * cosine + x[j + half] * sine);
      y[j + half] = scale * (-x[j] * sine + x[j + half] * cosine);
    }
  }

  const Case& c;
  Doubles qkv, cos, sin, table, scalars, tokens;
};

class QkvTest : public ::testing::TestWithParam<Case> {};

TEST_P(QkvTest, ForwardMatchesFloat64) {
  const Case& c = GetParam();
  const Data data(c, 1);
  RunQkv(c, data, 2);
  // The sums of squares and the products are in f32: 2^-16 covers them where two terms cancel.
  ExpectWithinBf16Steps(Joined(data.q, data.k, data.v), QkvOracle(c, data).Forward(), 0.5,
                        std::ldexp(1.0, -16), "q, k, v");
}

TEST_P(QkvTest, ThreadsSlotsAndLeavesChangeNoBit) {
  const Case& c = GetParam();
  const Data want(c, c.slots);
  RunQkv(c, want, 1);
  for (int threads : {2, 3}) {
    const Data got(c, c.slots);
    RunQkv(c, got, threads);
    ExpectSameBits(got.Outputs(), want.Outputs(), "threads");
  }
  const Data alone(c, c.slots);
  for (int64_t slot = 0; slot < c.slots; ++slot) {
    RunQkv(c, alone, 2, slot, 1, alone.dscalars.get().Slice(slot, 1));
  }
  ExpectSameBits(alone.Outputs(), want.Outputs(), "slots alone");

  // One leaf: the slots' sums in slot order.
  const Data one(c, 1);
  RunQkv(c, one, 2);
  for (int64_t i = 0; i < kScalars; ++i) {
    float sum = 0;
    for (int64_t slot = 0; slot < c.slots; ++slot) {
      sum += want.dscalars.get().f32()[slot * kScalars + i];
    }
    EXPECT_EQ(one.dscalars.get().f32()[i], sum) << i;
  }
}

// Small shapes, since there are two float64 forward passes for each element.
class QkvGradTest : public ::testing::TestWithParam<Case> {};

TEST_P(QkvGradTest, MatchesFiniteDifferences) {
  const Case& c = GetParam();
  const Data data(c, 1);
  const Doubles rows_before = data.dvalue_rows.ToDouble();
  RunQkv(c, data, 2);
  QkvOracle oracle(c, data);
  const Doubles dy = Joined(data.dq, data.dk, data.dv);
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
  // The f32 arithmetic cancels in dn - n * mean(n dn): 2^-16 of values near 1. The finite
  // differences are good to 1e-7.
  ExpectWithinBf16Steps(data.dqkv.ToDouble(), differences(oracle.qkv), 0.5, std::ldexp(8.0, -16),
                        "dqkv");
  ExpectNear(data.dscalars.ToDouble(), differences(oracle.scalars), 1e-5, 1e-4, "dscalars");
  if (!c.table) return;
  Doubles rows = rows_before;
  const Doubles dv = data.dv.ToDouble();
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += oracle.scalars[kLambda + 1] * dv[i];
  ExpectWithinBf16Steps(data.dvalue_rows.ToDouble(), rows, 0.5, std::ldexp(1.0, -16),
                        "dvalue_rows");
}

INSTANTIATE_TEST_SUITE_P(Shapes, QkvTest,
                         ::testing::Values(Case{1, 1, 1, 8, true}, Case{2, 3, 2, 24, true},
                                           Case{3, 5, 2, 6, false}, Case{2, 65, 3, 16, true},
                                           Case{3, 70, 6, 128, true}, Case{1, 48, 2, 96, false},
                                           Case{2, 65, 3, 16, true, true, true},
                                           Case{2, 5, 2, 6, false, true, false},
                                           Case{3, 40, 8, 128, true, true, true},
                                           Case{1, 16, 8, 128, false, false, true}));

INSTANTIATE_TEST_SUITE_P(Shapes, QkvGradTest,
                         ::testing::Values(Case{1, 1, 1, 8, true}, Case{2, 3, 2, 24, true},
                                           Case{3, 5, 2, 6, false}, Case{1, 70, 1, 8, true},
                                           Case{1, 2, 1, 128, true},
                                           Case{2, 3, 2, 24, true, true, true},
                                           Case{3, 5, 2, 6, false, true, false},
                                           Case{1, 2, 1, 128, true, true, true}));

// One head of two features at angle theta: (1, 0), which rms makes (sqrt 2, 0).
TEST(QkvRotary, T1_24_RotatesByMinusTheta) {
  const Case c = {1, 2, 1, 2, false};
  const Data data(c, 1);
  const HostTensor& qkv = data.qkv;
  for (int64_t i = 0; i < 12; ++i) qkv.get().bf16()[i] = ToBF16(i % 2 == 0 ? 1.0f : 0.0f);
  RunQkv(c, data, 1);
  for (int64_t t = 0; t < 2; ++t) {  // theta is t
    const Doubles q = data.q.ToDouble(), k = data.k.ToDouble();
    for (const Doubles* y : {&q, &k}) {
      // Rounded twice: the table and the result.
      const double root = std::sqrt(2.0), cosine = std::cos(t), sine = std::sin(t);
      EXPECT_TRUE(WithinBf16Steps((*y)[2 * t], root * cosine, 0.5,
                                  root * 0.5 * testing::Bf16Step(cosine) + 1e-6));
      EXPECT_TRUE(WithinBf16Steps((*y)[2 * t + 1], -root * sine, 0.5,
                                  root * 0.5 * testing::Bf16Step(sine) + 1e-6));
    }
  }
}

// The tables of a half truncated rotary: the features 32 to 63 and 96 to 127 of a head never turn,
// nor does position 0, and each pair keeps its length. In f32 tables the error is the result's.
TEST(QkvRotary, T2_12_HalfTruncated) {
  const Case c = {1, 3, 1, 128, false, true, true};
  Data data(c, 1);
  Doubles cosines, sines;
  for (int64_t t = 0; t < c.tokens + 3; ++t) {
    for (int64_t p = 0; p < 64; ++p) {
      const double angle = p < 32 ? t * std::pow(1024.0, -p / 31.0) : 0;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  data.cos.Set(cosines);
  data.sin.Set(sines);
  // Rows of rms 1, so that the norm is the identity up to a rounding: signs.
  const Doubles random = data.qkv.ToDouble();
  Doubles x(random.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = random[i] < 0 ? -1 : 1;
  data.qkv.Set(x);
  RunQkv(c, data, 1);
  for (const auto& [y, part] : {std::pair{data.q.ToDouble(), 0}, {data.k.ToDouble(), 1}}) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      const double* from = &x[(t * 3 + part) * 128];
      for (int64_t i = 0; i < 64; ++i) {
        const double first = y[t * 128 + i], second = y[t * 128 + 64 + i];
        if (t == 0 || i >= 32) {
          EXPECT_EQ(first, from[i]) << t << " " << i;
          EXPECT_EQ(second, from[64 + i]) << t << " " << i;
        }
        EXPECT_NEAR(std::hypot(first, second), std::sqrt(2.0),
                    testing::kBf16Roundoff * std::sqrt(2.0));  // as each of the two
      }
    }
  }

  // e_0, which the norm makes sqrt(128) e_0.
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 128 == 0;
  data.qkv.Set(x);
  RunQkv(c, data, 1);
  const double length = std::sqrt(128.0);
  EXPECT_TRUE(WithinBf16Steps(data.q.ToDouble()[128], 0.5403023 * length, 0.5, 1e-5));
  EXPECT_TRUE(WithinBf16Steps(data.q.ToDouble()[128 + 64], -0.8414710 * length, 0.5, 1e-5));
}

// All of q, k and v have a norm of their own: attention does not see the length of its input.
TEST(QkvNormValue, T2_22_TwiceTheInputIsTheSame) {
  const Case c = {2, 5, 8, 128, true, true, true};
  Data once(c, 1), twice(c, 1);
  Doubles x = twice.qkv.ToDouble();
  for (double& value : x) value *= 2;
  twice.qkv.Set(x);
  RunQkv(c, once, 1);
  RunQkv(c, twice, 1);
  // The epsilon is 2^-23 beside 1: at most a neighbour in bf16, where a value lies at a boundary.
  ExpectWithinBf16Steps(twice.q.ToDouble(), once.q.ToDouble(), 1, 1e-6, "q");
  ExpectWithinBf16Steps(twice.k.ToDouble(), once.k.ToDouble(), 1, 1e-6, "k");
  ExpectWithinBf16Steps(twice.v.ToDouble(), once.v.ToDouble(), 1, 1e-6, "v");
}

// Without a table a normed v is its lambda times the norm.
TEST(QkvNormValue, T2_09_RmsOfEachHead) {
  const Case c = {1, 1, 2, 4, false, true, true};
  Data data(c, 1);
  Doubles x(data.qkv.ToDouble().size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = i < 20 ? 1 + i % 4 : 0.01;
  data.qkv.Set(x);
  data.scalars.Set(Doubles(kScalars, 1.0));
  RunQkv(c, data, 1);
  ExpectWithinBf16Steps(
      data.v.ToDouble(),
      {0.365148, 0.730297, 1.095445, 1.460593, 0.999404, 0.999404, 0.999404, 0.999404}, 0.5, 1e-6,
      "v");
}

TEST(QkvDeathTest, NamesAForeignToken) {
  const Case c = {1, 4, 1, 8, true};
  const Data data(c, 1);
  data.tokens.get().i32()[2] = kVocabulary;
  EXPECT_DEATH(RunQkv(c, data, 1), "token 11 at row 2");
}

}  // namespace
}  // namespace kernels
