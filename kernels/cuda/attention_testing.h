// What the tests of attention on CUDA share: cases, their tensors on both backends, comparisons.
//
// CUDA rounds P and dS to bf16 before the products with them, the CPU does not. Each term of a sum
// is off by up to 2^-9 of itself, either way, so a sum by a few 2^-9 of its terms' size where
// terms cancel, and by 2^-9 / sqrt(3) of the norm over all sums; the roundings of both results to
// bf16 are of the same size. With q, k, v and do of size 1 and scale 0.1 the terms' sizes add up
// to less than 8. A wrong mask or a misplaced fragment is an error of the size of the results.
#ifndef KERNELS_CUDA_ATTENTION_TESTING_H_
#define KERNELS_CUDA_ATTENTION_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention_variants.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/attention.h"

namespace kernels {

inline constexpr double kElement = 1.0 / 64;  // absolute, beside one rounding
inline constexpr double kNorm = 1.0 / 160;    // of all elements together

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
inline Boundaries RandomDocuments(int slots, int tokens, int longest, size_t count = 0) {
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

// Either pass of the op has kernels for Hopper and for any card: where the op takes the first, the
// second are tested beside them.
enum class Way { kOp, kPortable };

// All tensors of a case.
struct Data {
  Twin q, k, v, do_, boundaries, o, lse, delta, dq, dk, dv;
  Way way = Way::kOp;

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
  void Forward(const Case& c, Side side, Queue& queue) const {
    if (side == Side::kCuda && way == Way::kPortable) {
      cuda::AttentionPortable(Args(c, side), queue);
    } else {
      Attention(Args(c, side), queue);
    }
  }
  void Backward(const Case& c, Side side, Queue& queue) const {
    if (side == Side::kCuda && way == Way::kPortable) {
      cuda::AttentionGradPortable(Args(c, side), do_.cuda, delta.cuda, dq.cuda, dk.cuda, dv.cuda,
                                  queue);
    } else {
      AttentionGrad(Args(c, side),
                    {.do_ = do_.on(side),
                     .delta = delta.on(side),
                     .dq = dq.on(side),
                     .dk = dk.on(side),
                     .dv = dv.on(side)},
                    queue);
    }
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
  // Those that differ on this card.
  static std::vector<Way> Ways(const Case& c, const Data& data) {
    if (cuda::AttentionHopperSupports(data.Args(c, Side::kCuda))) return {Way::kOp, Way::kPortable};
    return {Way::kOp};
  }
  // New outputs, all NaN.
  void Poison(const Case& c, Data& data) {
    for (Twin* output : {&data.o, &data.dq, &data.dk, &data.dv}) {
      *output = Output(DType::kBF16, c.dims());
    }
    data.lse = Output(DType::kF32, c.row_dims());
    data.delta = Output(DType::kF32, c.row_dims());
  }

  void ExpectForwardSameAsCpu(const Data& data, const std::string& what) {
    ExpectClose(data.o, kBf16Roundoff, kElement, "o, " + what);
    ExpectNormClose(data.o, kNorm, "o, " + what);
    // A log of sums, each exact to some 2^-22, of scores up to about 6.
    ExpectClose(data.lse, 0, 1e-5, "lse, " + what);
  }

  void ExpectBackwardSameAsCpu(const Case& c, const Data& data, const std::string& what) {
    ExpectClose(data.delta, 1e-5, 1e-5, "delta, " + what);
    for (const auto& [twin, name] :
         {std::pair(data.dq, "dq, "), std::pair(data.dk, "dk, "), std::pair(data.dv, "dv, ")}) {
      ExpectClose(twin, kBf16Roundoff, kElement, name + what);
    }
    ExpectNormClose(data.dv, kNorm, "dv, " + what);
    if (c.alone()) return;
    ExpectNormClose(data.dq, kNorm, "dq, " + what);
    ExpectNormClose(data.dk, kNorm, "dk, " + what);
  }

  void ExpectSameAsCpu(const Case& c) {
    const std::string what =
        absl::StrCat(c.slots(), " slots of ", c.tokens, " tokens, ", c.heads, " heads of ",
                     c.head_dim, ", window ", c.window, " in blocks of ", c.window_block,
                     ", boundaries ", c.boundaries[0].size());
    Data data = Make(c);
    Both([&](Side side, Queue& queue) { data.Forward(c, side, queue); });
    ExpectForwardSameAsCpu(data, what);
    if (Ways(c, data).size() > 1) {
      data.o.cuda = Output(DType::kBF16, c.dims()).cuda;
      data.lse.cuda = Output(DType::kF32, c.row_dims()).cuda;
      cuda::AttentionPortable(data.Args(c, Side::kCuda), cuda());
      ExpectForwardSameAsCpu(data, "portable, " + what);
    }

    // The gradient of the same o on both sides.
    Set(data.o.cuda, OnHost(data.o.cpu));
    Set(data.lse.cuda, OnHost(data.lse.cpu));
    Both([&](Side side, Queue& queue) { data.Backward(c, side, queue); });
    ExpectBackwardSameAsCpu(c, data, what);
    if (!cuda::AttentionGradHopperSupports(data.Args(c, Side::kCuda))) return;
    for (Twin* output : {&data.dq, &data.dk, &data.dv}) {
      output->cuda = Output(DType::kBF16, c.dims()).cuda;
    }
    data.delta.cuda = Output(DType::kF32, c.row_dims()).cuda;
    data.way = Way::kPortable;
    data.Backward(c, Side::kCuda, cuda());
    ExpectBackwardSameAsCpu(c, data, "portable, " + what);
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
    for (const Way way : Ways(c, data)) {
      Poison(c, data);
      data.way = way;
      data.Forward(c, Side::kCuda, cuda());
      const std::vector<double> o = OnHost(data.o.cuda);
      const std::vector<int>& ends = c.boundaries[0];
      for (int query = 0; query < kTokens; ++query) {
        const int64_t start = *(std::upper_bound(ends.begin(), ends.end(), query) - 1);
        const int64_t first = std::max<int64_t>(start, first_of(query));
        for (int key = 0; key < kTokens; ++key) {
          const double want = first <= key && key <= query ? 1.0 / (query - first + 1) : 0.0;
          ASSERT_NEAR(o[query * 128 + key], want, want * kBf16Roundoff)
              << "window " << c.window << ", query " << query << ", key " << key;
        }
      }
    }
  }
};

}  // namespace kernels

#endif  // KERNELS_CUDA_ATTENTION_TESTING_H_
