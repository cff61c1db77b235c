// Which keys a query sees where windows are whole blocks of the slot: modded-nanogpt, track 2,
// record of 2025-04-16. attention_test.cc has the values and gradients.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/attention.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

constexpr int64_t kBlock = 128;
constexpr int64_t kDim = 8;
constexpr float kScale = 0.12f;

// One slot, one head, windows of blocks of kBlock.
struct Problem {
  Problem(int64_t tokens, std::vector<int32_t> ends, int64_t dim = kDim)
      : dims{1, tokens, dim},
        q(RandomTensor(DType::kBF16, dims, 1)),
        k(RandomTensor(DType::kBF16, dims, 2)),
        v(RandomTensor(DType::kBF16, dims, 3)),
        do_(RandomTensor(DType::kBF16, dims, 4)),
        boundaries(DType::kI32, {1, static_cast<int64_t>(ends.size())}),
        o(DType::kBF16, dims),
        lse(DType::kF32, {1, 1, tokens}),
        delta(DType::kF32, {1, 1, tokens}),
        dq(DType::kBF16, dims),
        dk(DType::kBF16, dims),
        dv(DType::kBF16, dims) {
    std::copy(ends.begin(), ends.end(), boundaries.get().i32());
  }

  AttentionArgs Args(int64_t window_tokens, int64_t window_block = kBlock) const {
    return {.q = q,
            .k = k,
            .v = v,
            .boundaries = boundaries,
            .heads = 1,
            .window_tokens = window_tokens,
            .window_block = window_block,
            .scale = kScale,
            .o = o,
            .lse = lse};
  }
  void Forward(const AttentionArgs& args) const { Attention(args, *MakeCpuQueue(2)); }
  void Backward(const AttentionArgs& args) const {
    AttentionGrad(args, {.do_ = do_, .delta = delta, .dq = dq, .dk = dk, .dv = dv},
                  *MakeCpuQueue(2));
  }

  std::vector<int64_t> dims;
  HostTensor q, k, v, do_, boundaries, o, lse, delta, dq, dk, dv;
};

// The rule, token by token.
bool Sees(const std::vector<int32_t>& ends, int64_t blocks, int64_t query, int64_t key) {
  if (key > query) return false;
  if (query / kBlock - key / kBlock > std::max<int64_t>(blocks, 1) - 1) return false;
  for (int64_t end : ends) {
    if (key < end && end <= query) return false;
  }
  return true;
}

struct Keys {
  int64_t first = -1, last = -1, count = 0;
  bool operator==(const Keys& other) const {
    return first == other.first && last == other.last && count == other.count;
  }
  friend std::ostream& operator<<(std::ostream& out, const Keys& keys) {
    return out << keys.count << " keys from " << keys.first << " to " << keys.last;
  }
  void Add(int64_t key) {
    if (count++ == 0) first = key;
    last = key;
  }
};

Keys ByRule(const std::vector<int32_t>& ends, int64_t tokens, int64_t blocks, int64_t query) {
  Keys keys;
  for (int64_t key = 0; key < tokens; ++key) {
    if (Sees(ends, blocks, query, key)) keys.Add(key);
  }
  return keys;
}

// The keys whose dv the output of one query alone reaches: its probability, which is never 0.
Keys BySlope(const Problem& problem, int64_t blocks, int64_t query) {
  const int64_t tokens = problem.dims[1], dim = problem.dims[2];
  std::memset(problem.do_.get().data(), 0, problem.do_.get().bytes());
  std::fill_n(problem.do_.get().bf16() + query * dim, dim, ToBF16(1.0f));
  problem.Forward(problem.Args(blocks * kBlock));
  problem.Backward(problem.Args(blocks * kBlock));
  Keys keys;
  for (int64_t key = 0; key < tokens; ++key) {
    if (ToFloat(problem.dv.get().bf16()[key * dim]) != 0) keys.Add(key);
  }
  return keys;
}

// Documents of 1 to `longest` tokens, one in eight of them empty.
std::vector<int32_t> RandomDocuments(int32_t tokens, int longest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ends = {0};
  while (ends.back() < tokens) {
    const int length = random() % 8 == 0 ? 0 : 1 + static_cast<int>(random() % longest);
    ends.push_back(std::min(tokens, ends.back() + length));
  }
  return ends;
}

// Of all queries the number of keys, which q = 0 shows as exp(lse); of some which keys they are.
TEST(AttentionBlocks, T2_14_MaskIsTheRule) {
  constexpr int64_t kTokens = 2000;
  for (int64_t blocks = 0; blocks <= 14; ++blocks) {
    const int longest = blocks % 3 == 0 ? 4000 : blocks % 3 == 1 ? 600 : 90;
    const std::vector<int32_t> ends = RandomDocuments(kTokens, longest, 100 + blocks);
    const Problem problem(kTokens, ends);
    std::mt19937 random(blocks);
    for (int i = 0; i < 3; ++i) {
      const int64_t query = random() % kTokens;
      EXPECT_EQ(BySlope(problem, blocks, query), ByRule(ends, kTokens, blocks, query))
          << blocks << " blocks, query " << query;
    }
    std::memset(problem.q.get().data(), 0, problem.q.get().bytes());
    problem.Forward(problem.Args(blocks * kBlock));
    for (int64_t query = 0; query < kTokens; ++query) {
      int64_t count = 0;
      for (int64_t key = 0; key <= query; ++key) count += Sees(ends, blocks, query, key);
      // Sums of ones are exact, and log to 1e-6.
      ASSERT_NEAR(problem.lse.get().f32()[query], std::log(static_cast<double>(count)), 2e-6)
          << blocks << " blocks, query " << query;
    }
  }
}

TEST(AttentionBlocks, T2_14_OtherKeysChangeNoBit) {
  constexpr int64_t kTokens = 1000;
  const std::vector<int32_t> ends = RandomDocuments(kTokens, 500, 7);
  for (int64_t blocks : {0, 1, 3}) {
    for (int64_t query : {0, 127, 128, 500, 777, 999}) {
      const Problem problem(kTokens, ends);
      const AttentionArgs args = problem.Args(blocks * kBlock);
      problem.Forward(args);
      const std::vector<double> o = problem.o.ToDouble(), lse = problem.lse.ToDouble();
      for (int64_t key = 0; key < kTokens; ++key) {
        if (Sees(ends, blocks, query, key)) continue;
        for (int64_t i = key * kDim; i < (key + 1) * kDim; ++i) {
          problem.k.get().bf16()[i] = ToBF16(30.0f);
          problem.v.get().bf16()[i] = ToBF16(-1e6f);
        }
      }
      problem.Forward(args);
      EXPECT_EQ(problem.lse.ToDouble()[query], lse[query]) << blocks << " " << query;
      for (int64_t i = query * kDim; i < (query + 1) * kDim; ++i) {
        ASSERT_EQ(problem.o.ToDouble()[i], o[i]) << blocks << " " << query;
      }
    }
  }
}

TEST(AttentionBlocks, T2_15_OneDocument) {
  const Problem problem(1024, {0, 1024});
  EXPECT_EQ(BySlope(problem, 3, 1000), (Keys{640, 1000, 361}));
  EXPECT_EQ(BySlope(problem, 3, 127), (Keys{0, 127, 128}));
  EXPECT_EQ(BySlope(problem, 3, 1023), (Keys{640, 1023, 384}));
}

TEST(AttentionBlocks, T2_16_DocumentStart) {
  const Problem problem(1024, {0, 700, 1024});
  EXPECT_EQ(BySlope(problem, 3, 1000), (Keys{700, 1000, 301}));
  EXPECT_EQ(BySlope(problem, 3, 699), (Keys{384, 699, 316}));
}

// The short window is half of the long one, rounded down, and no less than a block.
TEST(AttentionBlocks, T2_17_EffectiveBlocks) {
  const Problem problem(1024, {0, 1024});
  const int64_t longs[] = {1, 2, 3, 4, 14}, want[] = {1, 1, 1, 2, 7};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(BySlope(problem, longs[i] / 2, 1023),
              (Keys{1024 - want[i] * kBlock, 1023, want[i] * kBlock}))
        << longs[i];
  }
}

// |q| = |k| = sqrt(128), so that a score is at most 0.12 * 128. Rounding rows to bf16 moves their
// lengths by at most 2^-9 of themselves.
TEST(AttentionBlocks, T2_13_ScoreBound) {
  constexpr int64_t kTokens = 160, kHeadDim = 128;
  constexpr double kMost = 15.36;
  std::vector<int32_t> ends;
  for (int32_t end = 0; end <= kTokens; ++end) ends.push_back(end);  // documents of one token
  const Problem problem(kTokens, ends, kHeadDim);
  std::vector<double> q = problem.q.ToDouble();
  for (int64_t t = 0; t < kTokens; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < kHeadDim; ++i) sum += q[t * kHeadDim + i] * q[t * kHeadDim + i];
    for (int64_t i = 0; i < kHeadDim; ++i) q[t * kHeadDim + i] /= std::sqrt(sum / kHeadDim);
  }
  std::fill_n(q.begin(), kHeadDim, 1.0);  // without rounding
  problem.q.Set(q);
  problem.k.Set(q);
  problem.Forward(problem.Args(0));
  const float* lse = problem.lse.get().f32();  // of the one score, of a token and itself
  // 128 products, each rounded when it is added: how often depends on the instruction set.
  EXPECT_NEAR(lse[0], kMost, kMost * kHeadDim * 0x1p-24);
  for (int64_t t = 0; t < kTokens; ++t) EXPECT_NEAR(lse[t], kMost, kMost / 256) << t;

  // In one document: the score of q and its own key is the largest.
  std::fill(ends.begin() + 1, ends.end(), kTokens);
  std::copy(ends.begin(), ends.end(), problem.boundaries.get().i32());
  problem.Forward(problem.Args(2 * kBlock));
  for (int64_t t = 0; t < kTokens; ++t) {
    const double keys = static_cast<double>(t + 1);
    EXPECT_GE(lse[t], kMost * (1 - 1.0 / 256)) << t;
    EXPECT_LE(lse[t], kMost * (1 + 1.0 / 256) + std::log(keys)) << t;
  }
}

// Where the window has the whole document either way, the kinds of window are one computation.
TEST(AttentionBlocks, WindowOfTheWholeSlotIsThatOfTokens) {
  const Problem problem(300, {0, 120, 300});
  problem.Forward(problem.Args(3 * kBlock));
  problem.Backward(problem.Args(3 * kBlock));
  std::vector<std::vector<double>> want;
  for (const HostTensor* out : {&problem.o, &problem.dq, &problem.dk, &problem.dv}) {
    want.push_back(out->ToDouble());
  }
  problem.Forward(problem.Args(300, 0));
  problem.Backward(problem.Args(300, 0));
  int i = 0;
  for (const HostTensor* out : {&problem.o, &problem.dq, &problem.dk, &problem.dv}) {
    EXPECT_EQ(out->ToDouble(), want[i++]);
  }
}

}  // namespace
}  // namespace kernels
