#include "kernels/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::ExpectWithinBf16Steps;
using testing::HostTensor;
using testing::RandomTensor;

struct Case {
  std::string name;
  int64_t tokens;
  int heads;
  int64_t head_dim;
  int64_t window;
  std::vector<std::vector<int32_t>> boundaries;  // of each slot
  int64_t window_block = 0;

  int64_t slots() const { return boundaries.size(); }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Everything that forward and backward read and write.
struct Data {
  explicit Data(const Case& c)
      : dims{c.slots(), c.tokens, c.heads * c.head_dim},
        q(RandomTensor(DType::kBF16, dims, 1)),
        k(RandomTensor(DType::kBF16, dims, 2)),
        v(RandomTensor(DType::kBF16, dims, 3)),
        do_(RandomTensor(DType::kBF16, dims, 4)),
        boundaries(DType::kI32, {c.slots(), static_cast<int64_t>(c.boundaries[0].size())}),
        o(DType::kBF16, dims),
        lse(DType::kF32, {c.slots(), c.heads, c.tokens}),
        delta(DType::kF32, {c.slots(), c.heads, c.tokens}),
        dq(DType::kBF16, dims),
        dk(DType::kBF16, dims),
        dv(DType::kBF16, dims) {
    int32_t* out = boundaries.get().i32();
    for (const auto& slot : c.boundaries) out = std::copy(slot.begin(), slot.end(), out);
  }

  std::vector<Tensor> Outputs() const { return {o, lse, dq, dk, dv}; }

  std::vector<int64_t> dims;
  HostTensor q, k, v, do_, boundaries, o, lse, delta, dq, dk, dv;
};

constexpr float kScale = 0.1f;

// The slots [begin, begin + count).
AttentionArgs Args(const Case& c, const Data& data, int64_t begin, int64_t count) {
  AttentionArgs args;
  args.q = data.q.get().Slice(begin, count);
  args.k = data.k.get().Slice(begin, count);
  args.v = data.v.get().Slice(begin, count);
  args.boundaries = data.boundaries.get().Slice(begin, count);
  args.heads = c.heads;
  args.window_tokens = c.window;
  args.window_block = c.window_block;
  args.scale = kScale;
  args.o = data.o.get().Slice(begin, count);
  args.lse = data.lse.get().Slice(begin, count);
  return args;
}

void RunBoth(const Case& c, const Data& data, int threads, int64_t begin, int64_t count) {
  const auto queue = MakeCpuQueue(threads);
  const AttentionArgs args = Args(c, data, begin, count);
  Attention(args, *queue);
  AttentionGrad(args,
                {.do_ = data.do_.get().Slice(begin, count),
                 .delta = data.delta.get().Slice(begin, count),
                 .dq = data.dq.get().Slice(begin, count),
                 .dk = data.dk.get().Slice(begin, count),
                 .dv = data.dv.get().Slice(begin, count)},
                *queue);
}

using Doubles = std::vector<double>;

// Attention and its gradient from the definition, all slots.
struct Oracle {
  Oracle(const Case& c, const Data& data)
      : c(c), q(data.q.ToDouble()), k(data.k.ToDouble()), v(data.v.ToDouble()) {}

  size_t At(int64_t slot, int64_t token, int64_t head, int64_t i) const {
    return ((slot * c.tokens + token) * c.heads + head) * c.head_dim + i;
  }
  bool Sees(int64_t slot, int64_t query, int64_t key) const {
    if (key > query) return false;
    if (c.window_block == 0) {
      if (key < query - c.window) return false;
    } else if (query / c.window_block - key / c.window_block >
               std::max<int64_t>(c.window / c.window_block, 1) - 1) {
      return false;
    }
    for (int64_t boundary : c.boundaries[slot]) {
      if (key < boundary && boundary <= query) return false;  // another document
    }
    return true;
  }
  double Dot(const Doubles& a, size_t a_at, const Doubles& b, size_t b_at) const {
    double sum = 0;
    for (int64_t i = 0; i < c.head_dim; ++i) sum += a[a_at + i] * b[b_at + i];
    return sum;
  }
  // Calls f(slot, head, query).
  template <typename F>
  void ForEachQuery(const F& f) const {
    for (int64_t slot = 0; slot < c.slots(); ++slot) {
      for (int64_t head = 0; head < c.heads; ++head) {
        for (int64_t query = 0; query < c.tokens; ++query) f(slot, head, query);
      }
    }
  }

  void Forward() {
    o.assign(q.size(), 0);
    lse.clear();
    ForEachQuery([&](int64_t slot, int64_t head, int64_t query) {
      const size_t at = At(slot, query, head, 0);
      double sum = 0;
      for (int64_t key = 0; key < c.tokens; ++key) {
        if (!Sees(slot, query, key)) continue;
        const size_t key_at = At(slot, key, head, 0);
        const double e = std::exp(double{kScale} * Dot(q, at, k, key_at));
        sum += e;
        for (int64_t i = 0; i < c.head_dim; ++i) o[at + i] += e * v[key_at + i];
      }
      for (int64_t i = 0; i < c.head_dim; ++i) o[at + i] /= sum;
      lse.push_back(std::log(sum));
    });
  }

  // After Forward: the gradient of sum(o * do).
  void Backward(const Doubles& do_) {
    for (Doubles* grad : {&dq, &dk, &dv}) grad->assign(q.size(), 0);
    size_t row = 0;
    ForEachQuery([&](int64_t slot, int64_t head, int64_t query) {
      const size_t at = At(slot, query, head, 0);
      for (int64_t key = 0; key < c.tokens; ++key) {
        if (!Sees(slot, query, key)) continue;
        const size_t key_at = At(slot, key, head, 0);
        const double p = std::exp(double{kScale} * Dot(q, at, k, key_at) - lse[row]);
        const double ds = kScale * p * (Dot(do_, at, v, key_at) - Dot(do_, at, o, at));
        for (int64_t i = 0; i < c.head_dim; ++i) {
          dv[key_at + i] += p * do_[at + i];
          dq[at + i] += ds * k[key_at + i];
          dk[key_at + i] += ds * q[at + i];
        }
      }
      ++row;
    });
  }

  const Case& c;
  Doubles q, k, v, o, lse, dq, dk, dv;
};

void ExpectNear(const Doubles& got, const Doubles& want, double bound, const std::string& name) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], bound) << name << " " << i;
  }
}

class AttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionTest, MatchesFloat64) {
  const Case& c = GetParam();
  const Data data(c);
  RunBoth(c, data, 2, 0, c.slots());
  Oracle oracle(c, data);
  oracle.Forward();
  // One rounding to bf16 on top of f32 sums and exponentials: of at most a few hundred terms near
  // 1, so their error is far below 2^-12.
  const double sums = std::ldexp(1.0, -12);
  ExpectWithinBf16Steps(data.o.ToDouble(), oracle.o, 0.5, sums, "o");
  ExpectNear(data.lse.ToDouble(), oracle.lse, 1e-5, "lse");
  // The gradient's delta = rowsum(do * o) is of o as stored, rounded.
  oracle.o = data.o.ToDouble();
  oracle.Backward(data.do_.ToDouble());
  ExpectWithinBf16Steps(data.dq.ToDouble(), oracle.dq, 0.5, sums, "dq");
  ExpectWithinBf16Steps(data.dk.ToDouble(), oracle.dk, 0.5, sums, "dk");
  ExpectWithinBf16Steps(data.dv.ToDouble(), oracle.dv, 0.5, sums, "dv");
}

TEST_P(AttentionTest, ThreadsAndOtherSlotsChangeNoBit) {
  const Case& c = GetParam();
  const Data want(c);
  RunBoth(c, want, 1, 0, c.slots());
  const auto expect_same = [&](const Data& got, const char* what) {
    for (size_t i = 0; i < want.Outputs().size(); ++i) {
      const Tensor a = want.Outputs()[i], b = got.Outputs()[i];
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << what << ", output " << i;
    }
  };
  for (int threads : {2, 3}) {
    const Data got(c);
    RunBoth(c, got, threads, 0, c.slots());
    expect_same(got, "threads");
  }
  const Data alone(c);
  for (int64_t slot = 0; slot < c.slots(); ++slot) RunBoth(c, alone, 2, slot, 1);
  expect_same(alone, "slots alone");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    ::testing::Values(
        Case{"one_token", 1, 1, 8, 0, {{0, 1}}},
        Case{"empty_first_document", 16, 2, 16, 4, {{0, 0, 9, 16, 16}}},
        Case{"odd_tokens", 49, 1, 24, 1000, {{0, 49, 49}, {0, 48, 49}, {0, 1, 49}}},
        Case{"window_zero", 70, 2, 8, 0, {{0, 30, 70}}},
        Case{"documents_of_one_token", 67, 1, 32, 5, {{0, 1, 2, 2, 3, 64, 65, 65, 66, 67, 67}}},
        Case{"edge_on_blocks", 192, 1, 16, 64, {{0, 64, 64, 128, 192, 192}}},
        Case{"three_slots",
             150,
             2,
             40,
             33,
             {{0, 0, 100, 149, 150}, {0, 150, 150, 150, 150}, {0, 63, 65, 65, 150}}},
        Case{"window_over_blocks", 330, 1, 128, 129, {{0, 310, 330}}},
        Case{"record_heads", 96, 6, 128, 40, {{0, 7, 96}}},
        Case{"blocks_without_a_window", 200, 1, 24, 0, {{0, 90, 200}}, 16},
        Case{"blocks_longer_than_the_slot", 50, 1, 8, 128, {{0, 20, 50}}, 128},
        Case{"blocks_of_three_slots",
             150,
             2,
             40,
             48,
             {{0, 0, 100, 149, 150}, {0, 150, 150, 150, 150}, {0, 63, 65, 65, 150}},
             16},
        Case{"blocks_of_48", 330, 1, 64, 96, {{0, 48, 47 + 48, 330}}, 48},
        Case{"blocks_of_128_and_8_heads", 400, 8, 128, 256, {{0, 7, 390, 400}}, 128}),
    [](const auto& info) { return info.param.name; });

TEST(AttentionDeathTest, NamesBadBoundaries) {
  const Case c = {"", 16, 1, 8, 4, {{0, 12}}};
  const Data data(c);
  EXPECT_DEATH(RunBoth(c, data, 1, 0, 1), "last boundary of slot 0");
}

TEST(AttentionDeathTest, NamesBadHeadDim) {
  const Case c = {"", 16, 1, 12, 4, {{0, 16}}};
  const Data data(c);
  EXPECT_DEATH(RunBoth(c, data, 1, 0, 1), "head dim 12");
}

TEST(AttentionDeathTest, NamesBadBlocks) {
  const Case odd = {"", 48, 1, 8, 48, {{0, 48}}, 24};
  EXPECT_DEATH(RunBoth(odd, Data(odd), 1, 0, 1), "blocks of 24 tokens");
  const Case part = {"", 48, 1, 8, 40, {{0, 48}}, 16};
  EXPECT_DEATH(RunBoth(part, Data(part), 1, 0, 1), "window of 40 tokens in blocks of 16");
}

// Central differences of the float64 forward, whose own error is near 1e-8, confirm the
// gradient that the shapes above are held to.
void ExpectGradientOfOracle(const Case& c) {
  const Data data(c);
  Oracle oracle(c, data);
  const Doubles do_ = data.do_.ToDouble();
  oracle.Forward();
  oracle.Backward(do_);
  const auto loss = [&] {
    oracle.Forward();
    double sum = 0;
    for (size_t i = 0; i < do_.size(); ++i) sum += do_[i] * oracle.o[i];
    return sum;
  };
  const struct {
    Doubles& input;
    const Doubles grad;
  } pairs[] = {{oracle.q, oracle.dq}, {oracle.k, oracle.dk}, {oracle.v, oracle.dv}};
  constexpr double kStep = 1e-5;
  for (const auto& [input, grad] : pairs) {
    for (size_t i = 0; i < input.size(); ++i) {
      const double before = input[i];
      input[i] = before + kStep;
      const double up = loss();
      input[i] = before - kStep;
      const double down = loss();
      input[i] = before;
      ASSERT_NEAR((up - down) / (2 * kStep), grad[i], 1e-7) << i;
    }
  }
}

TEST(AttentionGradTest, OracleMatchesFiniteDifferences) {
  ExpectGradientOfOracle({"", 13, 2, 8, 4, {{0, 0, 6, 13}}});
  ExpectGradientOfOracle({"", 37, 1, 8, 16, {{0, 0, 6, 37}}, 16});
}

// With q = 0 all visible keys weigh the same, and one-hot v shows which they are.
TEST(Attention, T1_19_UO_13_WindowHasOneMoreKeyThanTokens) {
  for (int64_t window : {0, 1, 37, 63, 64, 65, 500}) {
    const Case c = {"", 128, 1, 128, window, {{0, 0, 5, 5, 6, 30, 128, 128}}};
    const Data data(c);
    std::memset(data.q.get().data(), 0, data.q.get().bytes());
    std::memset(data.v.get().data(), 0, data.v.get().bytes());
    for (int64_t i = 0; i < 128; ++i) data.v.get().bf16()[i * 128 + i] = ToBF16(1.0f);
    RunBoth(c, data, 2, 0, 1);
    const int64_t starts[] = {0, 5, 6, 30};
    for (int64_t query = 0; query < 128; ++query) {
      const int64_t start = *(std::upper_bound(starts, starts + 4, query) - 1);
      const int64_t first = std::max(start, query - window);
      const float weight = 1.0f / static_cast<float>(query - first + 1);
      for (int64_t key = 0; key < 128; ++key) {
        const bool visible = first <= key && key <= query;
        ASSERT_EQ(ToFloat(data.o.get().bf16()[query * 128 + key]),
                  visible ? RoundToBF16(weight) : 0.0f)
            << "window " << window << ", query " << query << ", key " << key;
      }
    }
  }
}

TEST(Attention, NanReachesTheOutput) {
  const Case c = {"", 16, 1, 8, 16, {{0, 16}}};
  const Data data(c);
  data.k.get().bf16()[3 * 8] = ToBF16(NAN);
  RunBoth(c, data, 1, 0, 1);
  const Doubles o = data.o.ToDouble();
  EXPECT_TRUE(std::isfinite(o[2 * 8]));
  for (int64_t query = 3; query < 16; ++query) EXPECT_TRUE(std::isnan(o[query * 8])) << query;
}

}  // namespace
}  // namespace kernels
