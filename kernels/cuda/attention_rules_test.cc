// Attention on CUDA: which keys a query sees and what stays in a document, bit by bit or by numbers
// that show it, and a small shape against the definition in float64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_testing.h"

namespace kernels {
namespace {

// What is not finite in a document's q, k or v stays in that document's outputs: behind the end of
// a slot is another slot, and in a tile and in a step there are several documents.
TEST_F(AttentionTest, HopperKernelKeepsWhatIsNotFiniteInItsDocument) {
  constexpr int kTokens = 400, kBegin = 130, kEnd = 230;
  const Case c = {
      kTokens, 1, 128, 90, {{0, 50, kBegin, kEnd, 300, 400}, {0, 60, 90, 200, 210, 400}}};
  Data data = Make(c);
  if (!cuda::AttentionHopperSupports(data.Args(c, Side::kCuda))) {
    GTEST_SKIP() << "no card of compute capability 9";
  }
  data.Forward(c, Side::kCuda, cuda());
  const std::vector<double> o = OnHost(data.o.cuda), lse = OnHost(data.lse.cuda);
  const auto is_own = [](int token) {  // of both slots
    return token < kTokens ? kBegin <= token && token < kEnd : token - kTokens < 60;
  };
  for (const double bad : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL}) {
    for (const Twin* input : {&data.q, &data.k, &data.v}) {
      const std::vector<double> good = OnHost(input->cuda);
      std::vector<double> values = good;
      for (const int token : {kBegin, kBegin + 40, kEnd - 1, kTokens, kTokens + 59}) {
        for (const int column : {0, 77, 127}) values[token * 128 + column] = bad;
      }
      Set(input->cuda, values);
      data.Forward(c, Side::kCuda, cuda());
      Set(input->cuda, good);
      const std::vector<double> got = OnHost(data.o.cuda), got_lse = OnHost(data.lse.cuda);
      int not_finite = 0;
      for (int token = 0; token < 2 * kTokens; ++token) {
        for (int i = token * 128; i < (token + 1) * 128; ++i) {
          not_finite += !std::isfinite(got[i]);
          if (!is_own(token)) {
            ASSERT_NEAR(got[i], o[i], kElement + kBf16Roundoff * std::fabs(o[i]))
                << bad << " in input " << input - &data.q << ": token " << token;
          }
        }
        if (!is_own(token)) {
          ASSERT_EQ(got_lse[token], lse[token]) << bad << ", token " << token;
        }
      }
      EXPECT_GT(not_finite, 0) << bad << " in input " << input - &data.q;
    }
  }
}

// With q = 0 all visible keys weigh the same, and one-hot v shows which they are.
TEST_F(AttentionTest, T1_19_WindowHasOneMoreKeyThanTokens) {
  for (const int64_t window : {0, 1, 31, 32, 33, 500}) {
    ExpectFirstKeys({128, 1, 128, window, {{0, 0, 5, 5, 6, 30, 128, 128}}},
                    [=](int query) { return query - window; });
  }
}

TEST_F(AttentionTest, T2_14_MaskOfBlocksIsTheRule) {
  for (const int64_t blocks : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    ExpectFirstKeys(
        {128, 1, 128, 16 * blocks, {{0, 0, 5, 5, 6, 30, 128, 128}}, 16},
        [=](int query) { return (query / 16 - std::max<int64_t>(blocks, 1) + 1) * 16; });
  }
}

// The number of keys of each query, which q = 0 shows as exp(lse), at the record's block size.
TEST_F(AttentionTest, T2_14_KeysInBlocksOf128) {
  constexpr int kTokens = 2000, kBlock = 128;
  for (int blocks = 0; blocks <= 14; ++blocks) {
    const int longest = blocks % 3 == 0 ? 4000 : blocks % 3 == 1 ? 600 : 90;
    const Case c = {kTokens, 1, 64, blocks * kBlock, RandomDocuments(1, kTokens, longest), kBlock};
    Data data = Make(c);
    data.q = Zeros(DType::kBF16, c.dims());
    data.Forward(c, Side::kCuda, cuda());
    const std::vector<double> lse = OnHost(data.lse.cuda);
    const std::vector<int>& ends = c.boundaries[0];
    for (int query = 0; query < kTokens; ++query) {
      const int start = *(std::upper_bound(ends.begin(), ends.end(), query) - 1);
      const int first = std::max(start, (query / kBlock - std::max(blocks, 1) + 1) * kBlock);
      ASSERT_NEAR(lse[query], std::log(static_cast<double>(query - first + 1)), 2e-6)
          << blocks << " blocks, query " << query;
    }
  }
}

// T2_15, one document, and T2_16, a document that starts at 700: windows of three blocks.
TEST_F(AttentionTest, T2_15_T2_16_KeysOfSomeQueries) {
  const auto keys = [&](const std::vector<int>& ends, int query) {
    const Case c = {1024, 1, 128, 3 * 128, {ends}, 128};
    Data data = Make(c);
    data.q = Zeros(DType::kBF16, c.dims());
    data.Forward(c, Side::kCuda, cuda());
    return std::lround(std::exp(OnHost(data.lse.cuda)[query]));
  };
  EXPECT_EQ(keys({0, 1024}, 1000), 361);
  EXPECT_EQ(keys({0, 1024}, 127), 128);
  EXPECT_EQ(keys({0, 1024}, 1023), 384);
  EXPECT_EQ(keys({0, 700, 1024}, 1000), 301);
  EXPECT_EQ(keys({0, 700, 1024}, 699), 316);
}

// Other values of k and v where the rule has no key: those of query and output stay.
TEST_F(AttentionTest, T2_14_OtherKeysChangeNoBit) {
  constexpr int kTokens = 800, kQuery = 700, kFirst = 512;
  const Case c = {kTokens, 1, 128, 256, {{0, 300, 800}}, 128};
  Data data = Make(c);
  data.Forward(c, Side::kCuda, cuda());
  const std::vector<double> o = OnHost(data.o.cuda), lse = OnHost(data.lse.cuda);
  std::vector<double> k = OnHost(data.k.cuda), v = OnHost(data.v.cuda);
  for (int key = 0; key < kTokens; ++key) {
    if (kFirst <= key && key <= kQuery) continue;
    for (int i = key * 128; i < (key + 1) * 128; ++i) {
      k[i] = 30;
      v[i] = -1e6;
    }
  }
  Set(data.k.cuda, k);
  Set(data.v.cuda, v);
  data.Forward(c, Side::kCuda, cuda());
  EXPECT_EQ(OnHost(data.lse.cuda)[kQuery], lse[kQuery]);
  const std::vector<double> after = OnHost(data.o.cuda);
  for (int i = kQuery * 128; i < (kQuery + 1) * 128; ++i) ASSERT_EQ(after[i], o[i]) << i;
}

// Attention of one slot and one head from the definition.
TEST_F(AttentionTest, MatchesFloat64) {
  constexpr int kTokens = 80, kDim = 64;
  const Case c = {kTokens, 1, kDim, 30, {{0, 50, 50, 80}}};
  const Data data = Make(c);
  data.Forward(c, Side::kCuda, cuda());
  data.Backward(c, Side::kCuda, cuda());
  const std::vector<double> q = OnHost(data.q.cpu), k = OnHost(data.k.cpu), v = OnHost(data.v.cpu),
                            do_ = OnHost(data.do_.cpu);
  const auto dot = [](const std::vector<double>& a, int i, const std::vector<double>& b, int j) {
    double sum = 0;
    for (int e = 0; e < kDim; ++e) sum += a[i * kDim + e] * b[j * kDim + e];
    return sum;
  };
  const double scale = 0.1f;
  std::vector<double> o(q.size()), dq(q.size()), dk(q.size()), dv(q.size()), lse(kTokens);
  for (int query = 0; query < kTokens; ++query) {
    const int first = std::max(query < 50 ? 0 : 50, query - 30);
    double sum = 0;
    for (int key = first; key <= query; ++key) sum += std::exp(scale * dot(q, query, k, key));
    lse[query] = std::log(sum);
    const auto p = [&](int key) { return std::exp(scale * dot(q, query, k, key)) / sum; };
    for (int key = first; key <= query; ++key) {
      for (int e = 0; e < kDim; ++e) o[query * kDim + e] += p(key) * v[key * kDim + e];
    }
    const double delta = dot(do_, query, o, query);
    for (int key = first; key <= query; ++key) {
      const double ds = scale * p(key) * (dot(do_, query, v, key) - delta);
      for (int e = 0; e < kDim; ++e) {
        dv[key * kDim + e] += p(key) * do_[query * kDim + e];
        dq[query * kDim + e] += ds * k[key * kDim + e];
        dk[key * kDim + e] += ds * q[query * kDim + e];
      }
    }
  }
  const auto expect = [&](const Twin& got, const std::vector<double>& want, double absolute,
                          const char* what) {
    Set(got.cpu, want);
    ExpectClose(got, kBf16Roundoff, absolute, what);
  };
  expect(data.o, o, kElement, "o");
  expect(data.lse, lse, 1e-5, "lse");
  expect(data.dq, dq, kElement, "dq");
  expect(data.dk, dk, kElement, "dk");
  expect(data.dv, dv, kElement, "dv");
}

}  // namespace
}  // namespace kernels
