// Rows of a slot over kept keys and values: against the definition, and against the whole slot's
// attention, of which they are a part.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/attention.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::WithinBf16Steps;

constexpr float kScale = 0.1f;
constexpr double kSums = 1.0 / 4096;  // the error of f32 sums and exponentials is far below

struct Case {
  std::string name;
  int64_t tokens;
  int heads;
  int64_t head_dim;
  int64_t window;
  int64_t window_block;
  std::vector<std::vector<int32_t>> boundaries;  // of each slot
  int64_t dim() const { return heads * head_dim; }
  int64_t slots() const { return static_cast<int64_t>(boundaries.size()); }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Rows {
  std::vector<double> o, lse;  // [slots, n, D] and [slots, heads, n]
};

class CachedAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  CachedAttentionTest()
      : c_(GetParam()),
        q_(RandomTensor(DType::kBF16, {c_.slots(), c_.tokens, c_.dim()}, 1)),
        k_(RandomTensor(DType::kBF16, {c_.slots(), c_.tokens, c_.dim()}, 2)),
        v_(RandomTensor(DType::kBF16, {c_.slots(), c_.tokens, c_.dim()}, 3)),
        boundaries_(DType::kI32, {c_.slots(), static_cast<int64_t>(c_.boundaries[0].size())}) {
    int32_t* out = boundaries_.get().i32();
    for (const auto& slot : c_.boundaries) out = std::copy(slot.begin(), slot.end(), out);
  }

  AttentionArgs Args(Tensor q, Tensor o, Tensor lse) const {
    return {.q = q,
            .k = k_,
            .v = v_,
            .boundaries = boundaries_,
            .heads = c_.heads,
            .window_tokens = c_.window,
            .window_block = c_.window_block,
            .scale = kScale,
            .o = o,
            .lse = lse};
  }

  Rows Whole() const {
    const HostTensor o(DType::kBF16, q_.get().dims());
    const HostTensor lse(DType::kF32, {c_.slots(), c_.heads, c_.tokens});
    Attention(Args(q_, o, lse), *MakeCpuQueue(2));
    return {o.ToDouble(), lse.ToDouble()};
  }

  Rows Part(int64_t begin, int64_t n) const {
    const HostTensor q(DType::kBF16, {c_.slots(), n, c_.dim()});
    for (int64_t slot = 0; slot < c_.slots(); ++slot) {
      std::copy_n(q_.get().bf16() + (slot * c_.tokens + begin) * c_.dim(), n * c_.dim(),
                  q.get().bf16() + slot * n * c_.dim());
    }
    const HostTensor o(DType::kBF16, {c_.slots(), n, c_.dim()});
    const HostTensor lse(DType::kF32, {c_.slots(), c_.heads, n});
    CachedAttention(Args(q, o, lse), begin, *MakeCpuQueue(2));
    return {o.ToDouble(), lse.ToDouble()};
  }

  bool Sees(int64_t slot, int64_t query, int64_t key) const {
    if (key > query) return false;
    if (c_.window_block == 0) {
      if (key < query - c_.window) return false;
    } else if (query / c_.window_block - key / c_.window_block >=
               std::max<int64_t>(c_.window / c_.window_block, 1)) {
      return false;
    }
    for (int64_t boundary : c_.boundaries[slot]) {
      if (key < boundary && boundary <= query) return false;
    }
    return true;
  }

  // One query of one head by the definition: d outputs, then log of the sum.
  std::vector<double> Oracle(int64_t slot, int64_t head, int64_t query) const {
    const std::vector<double> q = q_.ToDouble(), k = k_.ToDouble(), v = v_.ToDouble();
    const auto at = [&](int64_t t) {
      return (slot * c_.tokens + t) * c_.dim() + head * c_.head_dim;
    };
    std::vector<double> out(c_.head_dim + 1, 0.0);
    double sum = 0;
    for (int64_t key = 0; key < c_.tokens; ++key) {
      if (!Sees(slot, query, key)) continue;
      double score = 0;
      for (int64_t i = 0; i < c_.head_dim; ++i) score += q[at(query) + i] * k[at(key) + i];
      const double weight = std::exp(double{kScale} * score);
      sum += weight;
      for (int64_t i = 0; i < c_.head_dim; ++i) out[i] += weight * v[at(key) + i];
    }
    for (int64_t i = 0; i < c_.head_dim; ++i) out[i] /= sum;
    out[c_.head_dim] = std::log(sum);
    return out;
  }

  const Case c_;
  const HostTensor q_, k_, v_, boundaries_;
};

// As in AttentionTest: one rounding to bf16 on top of f32 sums.
TEST_P(CachedAttentionTest, MatchesFloat64) {
  for (int64_t n : {1, 3}) {
    for (int64_t begin = 0; begin + n <= c_.tokens; begin += 13) {
      const Rows got = Part(begin, n);
      for (int64_t slot = 0; slot < c_.slots(); ++slot) {
        const int64_t row = n - 1, head = c_.heads - 1;
        const std::vector<double> want = Oracle(slot, head, begin + row);
        for (int64_t i = 0; i < c_.head_dim; ++i) {
          const double o = got.o[(slot * n + row) * c_.dim() + head * c_.head_dim + i];
          ASSERT_TRUE(WithinBf16Steps(o, want[i], 0.5, kSums))
              << "query " << begin + row << ", feature " << i;
        }
        ASSERT_NEAR(got.lse[(slot * c_.heads + head) * n + row], want[c_.head_dim], 1e-5)
            << "query " << begin + row;
      }
    }
  }
}

TEST_P(CachedAttentionTest, AllRowsAreAttentionToTheBit) {
  const Rows whole = Whole(), got = Part(0, c_.tokens);
  EXPECT_EQ(got.o, whole.o);
  EXPECT_EQ(got.lse, whole.lse);
}

// Case G1: every row, whatever came with it. oneDNN's order of a sum depends on the number of rows
// and on the instruction set, so a sum that is near the middle of two values in bf16 may be rounded
// to either: one step, and the f32 sums' error where the step is smaller than that.
TEST_P(CachedAttentionTest, RowsAreThoseOfTheWholeSlot) {
  const Rows whole = Whole();
  for (int64_t n : {1, 5, 70}) {
    for (int64_t begin = 0; begin + n <= c_.tokens; begin += n) {
      const Rows got = Part(begin, n);
      for (int64_t slot = 0; slot < c_.slots(); ++slot) {
        for (int64_t i = 0; i < n * c_.dim(); ++i) {
          const double want = whole.o[(slot * c_.tokens + begin) * c_.dim() + i];
          ASSERT_TRUE(WithinBf16Steps(got.o[slot * n * c_.dim() + i], want, 1, kSums))
              << n << " queries from " << begin << ", slot " << slot << ", element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CachedAttentionTest,
    ::testing::Values(Case{"one_document", 150, 2, 16, 40, 0, {{0, 150}}},
                      Case{"window_over_blocks", 200, 1, 64, 129, 0, {{0, 200}}},
                      Case{"documents", 140, 2, 8, 1000, 0, {{0, 3, 3, 65, 140}}},
                      Case{"two_slots", 90, 1, 24, 20, 0, {{0, 90, 90}, {0, 40, 90}}},
                      Case{"blocks", 150, 2, 16, 48, 16, {{0, 150}}},
                      Case{"one_block_alone", 150, 1, 16, 0, 16, {{0, 20, 150}}}),
    [](const auto& info) { return info.param.name; });

TEST(CachedAttentionDeathTest, NamesRowsBehindTheKeptOnes) {
  const HostTensor q(DType::kBF16, {1, 3, 8}), kept(DType::kBF16, {1, 16, 8});
  const HostTensor boundaries(DType::kI32, {1, 2}), lse(DType::kF32, {1, 1, 3});
  boundaries.get().i32()[1] = 16;
  const AttentionArgs args{.q = q,
                           .k = kept,
                           .v = kept,
                           .boundaries = boundaries,
                           .heads = 1,
                           .window_tokens = 4,
                           .scale = kScale,
                           .o = q,
                           .lse = lse};
  EXPECT_DEATH(CachedAttention(args, 14, *MakeCpuQueue(1)), "from position 14 on");
}

}  // namespace
}  // namespace kernels
