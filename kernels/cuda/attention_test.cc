// Attention: CUDA against the CPU, and a small shape against the definition in float64.
//
// CUDA rounds P and dS to bf16 before the products with them, the CPU does not. Each term of a sum
// is off by up to 2^-9 of itself, either way, so a sum by a few 2^-9 of its terms' size where
// terms cancel, and by 2^-9 / sqrt(3) of the norm over all sums; the roundings of both results to
// bf16 are of the same size. With q, k, v and do of size 1 and scale 0.1 the terms' sizes add up
// to less than 8. A wrong mask or a misplaced fragment is an error of the size of the results.
#include "kernels/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

constexpr double kElement = 1.0 / 64;  // absolute, beside one rounding
constexpr double kNorm = 1.0 / 160;    // of all elements together

using Boundaries = std::vector<std::vector<int>>;  // of each slot

struct Case {
  int64_t tokens;
  int heads;
  int64_t head_dim;
  int64_t window;
  Boundaries boundaries;
  int64_t window_block = 0;

  int64_t slots() const { return boundaries.size(); }
  // Every query sees itself alone. Then dq and dk are 0 but for the rounding of sums.
  bool alone() const {
    return (window == 0 && window_block == 0) ||
           boundaries[0].size() == static_cast<size_t>(tokens + 1);
  }
  std::vector<int64_t> dims() const { return {slots(), tokens, heads * head_dim}; }
  std::vector<int64_t> row_dims() const { return {slots(), heads, tokens}; }
};

// Documents of 0 (one in four) to `longest` tokens, other ones in each slot. The first slot also
// has empty documents at both ends. Every slot's table is as long as the longest, or `count`.
Boundaries RandomDocuments(int slots, int tokens, int longest, size_t count = 0) {
  std::mt19937 random(7 * slots + tokens + longest);
  Boundaries boundaries(slots);
  for (int slot = 0; slot < slots; ++slot) {
    std::vector<int>& ends = boundaries[slot];
    ends.assign(slot == 0 ? 3 : 1, 0);
    while (ends.back() < tokens) {
      const int length = random() % 4 == 0 ? 0 : 1 + static_cast<int>(random() % longest);
      ends.push_back(std::min(tokens, ends.back() + length));
    }
    if (slot == 0) ends.push_back(tokens);
    count = std::max(count, ends.size());
  }
  for (std::vector<int>& ends : boundaries) ends.resize(count, tokens);
  return boundaries;
}

// All tensors of a case.
struct Data {
  Twin q, k, v, do_, boundaries, o, lse, delta, dq, dk, dv;

  AttentionArgs Args(const Case& c, Side side) const {
    AttentionArgs args;
    args.q = q.on(side);
    args.k = k.on(side);
    args.v = v.on(side);
    args.boundaries = boundaries.on(side);
    args.heads = c.heads;
    args.window_tokens = c.window;
    args.window_block = c.window_block;
    args.scale = 0.1f;
    args.o = o.on(side);
    args.lse = lse.on(side);
    return args;
  }
  void Forward(const Case& c, Side side, Queue& queue) const { Attention(Args(c, side), queue); }
  void Backward(const Case& c, Side side, Queue& queue) const {
    AttentionGrad(Args(c, side), do_.on(side), delta.on(side), dq.on(side), dk.on(side),
                  dv.on(side), queue);
  }
  // One slot of the CUDA side.
  Data Slot(int64_t slot) const {
    Data one = *this;
    for (Twin* twin : {&one.q, &one.k, &one.v, &one.do_, &one.boundaries, &one.o, &one.lse,
                       &one.delta, &one.dq, &one.dk, &one.dv}) {
      twin->cuda = twin->cuda.Slice(slot, 1);
    }
    return one;
  }
  std::vector<Tensor> CudaOutputs() const {
    return {o.cuda, lse.cuda, delta.cuda, dq.cuda, dk.cuda, dv.cuda};
  }
};

class AttentionTest : public CudaTest {
 protected:
  Data Make(const Case& c) {
    Data data;
    for (Twin* input : {&data.q, &data.k, &data.v, &data.do_}) {
      *input = Normal(DType::kBF16, c.dims());
    }
    std::vector<double> ends;
    for (const std::vector<int>& slot : c.boundaries) {
      ends.insert(ends.end(), slot.begin(), slot.end());
    }
    data.boundaries =
        Of(DType::kI32, {c.slots(), static_cast<int64_t>(c.boundaries[0].size())}, ends);
    Poison(c, data);
    return data;
  }
  // New outputs, all NaN.
  void Poison(const Case& c, Data& data) {
    for (Twin* output : {&data.o, &data.dq, &data.dk, &data.dv}) {
      *output = Output(DType::kBF16, c.dims());
    }
    data.lse = Output(DType::kF32, c.row_dims());
    data.delta = Output(DType::kF32, c.row_dims());
  }

  void ExpectSameAsCpu(const Case& c) {
    const std::string what =
        absl::StrCat(c.slots(), " slots of ", c.tokens, " tokens, ", c.heads, " heads of ",
                     c.head_dim, ", window ", c.window, " in blocks of ", c.window_block,
                     ", boundaries ", c.boundaries[0].size());
    const Data data = Make(c);
    Both([&](Side side, Queue& queue) { data.Forward(c, side, queue); });
    ExpectClose(data.o, kBF16Ulp, kElement, "o, " + what);
    ExpectNormClose(data.o, kNorm, "o, " + what);
    // A log of sums, each exact to some 2^-22, of scores up to about 6.
    ExpectClose(data.lse, 0, 1e-5, "lse, " + what);

    // The gradient of the same o on both sides.
    Set(data.o.cuda, OnHost(data.o.cpu));
    Set(data.lse.cuda, OnHost(data.lse.cpu));
    Both([&](Side side, Queue& queue) { data.Backward(c, side, queue); });
    ExpectClose(data.delta, 1e-5, 1e-5, "delta, " + what);
    for (const auto& [twin, name] :
         {std::pair(data.dq, "dq, "), std::pair(data.dk, "dk, "), std::pair(data.dv, "dv, ")}) {
      ExpectClose(twin, kBF16Ulp, kElement, name + what);
    }
    ExpectNormClose(data.dv, kNorm, "dv, " + what);
    if (c.alone()) return;
    ExpectNormClose(data.dq, kNorm, "dq, " + what);
    ExpectNormClose(data.dk, kNorm, "dk, " + what);
  }

  // Of a case of 128 tokens and a head of 128: that query q sees the keys of its document from
  // first(q) on.
  template <typename F>
  void ExpectFirstKeys(const Case& c, const F& first_of) {
    constexpr int kTokens = 128;
    Data data = Make(c);
    data.q = Zeros(DType::kBF16, c.dims());
    std::vector<double> one_hot(kTokens * 128, 0.0);
    for (int i = 0; i < kTokens; ++i) one_hot[i * 128 + i] = 1;
    Set(data.v.cuda, one_hot);
    data.Forward(c, Side::kCuda, cuda());
    const std::vector<double> o = OnHost(data.o.cuda);
    const std::vector<int>& ends = c.boundaries[0];
    for (int query = 0; query < kTokens; ++query) {
      const int64_t start = *(std::upper_bound(ends.begin(), ends.end(), query) - 1);
      const int64_t first = std::max<int64_t>(start, first_of(query));
      for (int key = 0; key < kTokens; ++key) {
        const double want = first <= key && key <= query ? 1.0 / (query - first + 1) : 0.0;
        ASSERT_NEAR(o[query * 128 + key], want, want * kBF16Ulp)
            << "window " << c.window << ", query " << query << ", key " << key;
      }
    }
  }
};

TEST_F(AttentionTest, HeadDimsHeadsAndTails) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int heads : {1, 2, 6}) {
      for (const int tokens : {16, 48, 128, 208}) {
        ExpectSameAsCpu({tokens, heads, head_dim, 40, RandomDocuments(1, tokens, tokens)});
      }
    }
  }
}

TEST_F(AttentionTest, Windows) {
  for (const int64_t window : {0, 1, 5, 16, 63, 64, 65, 128, 300, 4096}) {
    ExpectSameAsCpu({560, 1, 128, window, {{0, 560}}});
    ExpectSameAsCpu({560, 1, 64, window, RandomDocuments(2, 560, 250)});
    ExpectSameAsCpu({560, 2, 128, window, RandomDocuments(2, 560, 12)});
  }
}

TEST_F(AttentionTest, WindowsOfBlocks) {
  for (const int64_t block : {16, 48, 128, 256}) {
    for (const int64_t blocks : {0, 1, 2, 3, 14}) {
      const int64_t window = blocks * block;
      ExpectSameAsCpu({560, 1, 128, window, {{0, 560}}, block});
      ExpectSameAsCpu({560, 1, 64, window, RandomDocuments(2, 560, 250), block});
      ExpectSameAsCpu({560, 2, 128, window, RandomDocuments(2, 560, 12), block});
    }
  }
  ExpectSameAsCpu({16, 2, 128, 256, {{0, 5, 16}}, 128});  // blocks longer than the slot
}

TEST_F(AttentionTest, EmptyDocumentsAndEdgesOnTiles) {
  const Boundaries tables = {
      {0, 256, 256, 256, 256, 256, 256, 256}, {0, 0, 0, 0, 0, 0, 0, 256},
      {0, 0, 64, 64, 128, 192, 256, 256},     {0, 32, 128, 128, 128, 160, 160, 256},
      {0, 1, 127, 129, 255, 256, 256, 256},   {0, 63, 63, 65, 95, 97, 255, 256}};
  for (const std::vector<int>& table : tables) {
    for (const int64_t window : {7, 128}) {
      ExpectSameAsCpu({256, 1, 64, window, {table}});
      ExpectSameAsCpu({256, 1, 128, window, {table}});
    }
  }
}

TEST_F(AttentionTest, DocumentsOfOneToken) {
  std::vector<int> ends(177);
  for (int i = 0; i < 177; ++i) ends[i] = i;
  ExpectSameAsCpu({176, 2, 128, 128, {ends}});
}

TEST_F(AttentionTest, LongSlots) {
  ExpectSameAsCpu({1024, 2, 64, 4096, RandomDocuments(3, 1024, 700)});
  ExpectSameAsCpu({2048, 6, 128, 128, RandomDocuments(1, 2048, 900)});
  ExpectSameAsCpu({2048, 1, 128, 4096, {{0, 2048}}});
  ExpectSameAsCpu({2048, 1, 128, 300, RandomDocuments(2, 2048, 100, 256)});
}

TEST_F(AttentionTest, LongSlotsInBlocks) {
  ExpectSameAsCpu({2048, 8, 128, 256, RandomDocuments(1, 2048, 900), 128});
  ExpectSameAsCpu({2048, 1, 128, 1792, {{0, 2048}}, 128});
  ExpectSameAsCpu({2048, 1, 64, 384, RandomDocuments(2, 2048, 100, 256), 128});
  ExpectSameAsCpu({2048, 1, 128, 0, RandomDocuments(2, 2048, 3, 1500), 128});
}

TEST_F(AttentionTest, MoreBoundariesThanFitIntoSharedMemory) {
  ExpectSameAsCpu({2048, 1, 64, 128, RandomDocuments(2, 2048, 3, 1500)});
}

TEST_F(AttentionTest, RepeatsAndSlotsAreIndependent) {
  const Boundaries documents = RandomDocuments(3, 400, 160);
  for (const Case& c :
       {Case{400, 2, 64, 150, documents}, Case{400, 2, 128, 150, documents},
        Case{400, 2, 64, 256, documents, 128}, Case{400, 2, 128, 128, documents, 128}}) {
    Data data = Make(c);
    const auto run = [&](Queue& queue) {
      data.Forward(c, Side::kCuda, queue);
      data.Backward(c, Side::kCuda, queue);
    };
    ExpectRepeats(run, data.CudaOutputs());
    run(cuda());
    const std::vector<Tensor> together = data.CudaOutputs();

    Poison(c, data);
    for (int64_t slot = 0; slot < c.slots(); ++slot) {
      const Data one = data.Slot(slot);
      one.Forward(c, Side::kCuda, cuda());
      one.Backward(c, Side::kCuda, cuda());
    }
    const std::vector<Tensor> alone = data.CudaOutputs();
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(Bytes(together[i]) == Bytes(alone[i]))
          << "output " << i << ", d " << c.head_dim << ", blocks of " << c.window_block;
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
    ExpectClose(got, kBF16Ulp, absolute, what);
  };
  expect(data.o, o, kElement, "o");
  expect(data.lse, lse, 1e-5, "lse");
  expect(data.dq, dq, kElement, "dq");
  expect(data.dk, dk, kElement, "dk");
  expect(data.dv, dv, kElement, "dv");
}

}  // namespace
}  // namespace kernels
