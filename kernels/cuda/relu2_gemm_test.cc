// The MLP's wide products with the squared ReLU, through the ops: as one kernel where it takes the
// shape, as the library's product and a pass over it otherwise. Both against the CPU; tolerances as
// in matmul_test.cc.
#include "kernels/cuda/relu2_gemm.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/matmul.h"

namespace kernels {
namespace {

struct Mlp {
  int64_t tokens, in, hidden;
  bool fused;  // on Hopper
};

// Fewer rows than a tile; several tiles, the last of them in part; half a tile of columns; a sum
// as short as one place of the ring, and several times round it.
constexpr Mlp kMlps[] = {
    {16, 64, 128, true},    {48, 768, 3072, true}, {208, 128, 640, true},
    {1040, 192, 384, true}, {48, 72, 512, false},  // no multiple of 64 to sum over
    {48, 128, 192, false}                          // no multiple of 128 columns
};

constexpr HiddenDim kBoth[] = {HiddenDim::kRows, HiddenDim::kColumns};

class Relu2GemmTest : public CudaTest {
 protected:
  static bool Hopper() {
    int device = 0, major = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major == 9;
  }
  static std::vector<int64_t> Weight(const Mlp& mlp, HiddenDim hidden) {
    if (hidden == HiddenDim::kRows) return {mlp.hidden, mlp.in};
    return {mlp.in, mlp.hidden};
  }
  static std::string Name(const Mlp& mlp, HiddenDim hidden, int64_t slots) {
    return absl::StrCat(slots, " x ", mlp.tokens, " tokens, ", mlp.in, " to ", mlp.hidden,
                        hidden == HiddenDim::kRows ? " rows" : " columns");
  }
};

// Or the tests below would test one of the two ways twice.
TEST_F(Relu2GemmTest, TakesWhatItIsForOnHopperOnly) {
  for (const HiddenDim hidden : kBoth) {
    for (const Mlp& mlp : kMlps) {
      EXPECT_EQ(cuda::Relu2GemmSupports({mlp.tokens, mlp.hidden, mlp.in, hidden}),
                mlp.fused && Hopper())
          << Name(mlp, hidden, 1);
    }
  }
}

TEST_F(Relu2GemmTest, AsOnTheCpu) {
  for (const Mlp& mlp : kMlps) {
    for (const HiddenDim hidden : kBoth) {
      for (const int64_t slots : {1, 3}) {
        const std::string name = Name(mlp, hidden, slots);
        const std::vector<int64_t> dims = {slots, mlp.tokens, mlp.hidden};
        const Twin u = Normal(DType::kBF16, {slots, mlp.tokens, mlp.in});
        const Twin w = Normal(DType::kBF16, Weight(mlp, hidden), 1 / std::sqrt(mlp.in));
        const Twin a = Output(DType::kBF16, dims), b = Output(DType::kBF16, dims);
        Both([&](Side side, Queue& queue) {
          LinearRelu2(u.on(side), w.on(side), hidden, a.on(side), b.on(side), queue);
        });
        ExpectClose(a, 2 * kBf16Roundoff, 0, name + " a");
        // Of the a beside it, bit by bit: squares of bf16 are exact before they are rounded.
        std::vector<double> squares = OnHost(a.cuda);
        for (double& value : squares) value = std::pow(std::max(value, 0.0), 2);
        ExpectSameBits({Of(DType::kBF16, dims, squares).cpu, b.cuda}, name + " b");

        const Twin same_a = Of(DType::kBF16, dims, OnHost(a.cpu)), da = Output(DType::kBF16, dims);
        Both([&](Side side, Queue& queue) {
          LinearRelu2Grad(u.on(side), w.on(side), hidden, same_a.on(side), da.on(side), queue);
        });
        ExpectClose(da, 4 * kBf16Roundoff, 0, name + " da");
        ExpectSameBits(same_a, name + " a is only read");
      }
    }
  }
}

TEST_F(Relu2GemmTest, ASlotHasTheSameBitsAloneAndInAPassAndInEachRun) {
  for (const Mlp& mlp : kMlps) {
    for (const HiddenDim hidden : kBoth) {
      const std::vector<int64_t> dims = {3, mlp.tokens, mlp.hidden};
      const Tensor u = Normal(DType::kBF16, {3, mlp.tokens, mlp.in}).cuda;
      const Tensor w = Normal(DType::kBF16, Weight(mlp, hidden), 1 / std::sqrt(mlp.in)).cuda;
      const auto output = [&] { return Output(DType::kBF16, dims).cuda; };
      const Tensor a = output(), b = output(), da = output();
      const Tensor alone_a = output(), alone_b = output(), alone_da = output();
      LinearRelu2(u, w, hidden, a, b, deterministic());
      LinearRelu2Grad(u, w, hidden, a, da, deterministic());
      for (int slot = 0; slot < 3; ++slot) {
        const auto of = [slot](const Tensor& t) { return t.Slice(slot, 1); };
        LinearRelu2(of(u), w, hidden, of(alone_a), of(alone_b), deterministic());
        LinearRelu2Grad(of(u), w, hidden, of(a), of(alone_da), deterministic());
      }
      deterministic().Synchronize();
      const std::string name = Name(mlp, hidden, 3);
      EXPECT_TRUE(Bytes(a) == Bytes(alone_a)) << name;
      EXPECT_TRUE(Bytes(b) == Bytes(alone_b)) << name;
      EXPECT_TRUE(Bytes(da) == Bytes(alone_da)) << name;
    }
  }
}

TEST_F(Relu2GemmTest, GradientInPlace) {
  if (!Hopper()) GTEST_SKIP() << "the kernel is for Hopper";
  for (const HiddenDim hidden : kBoth) {
    const Mlp mlp = {1040, 192, 384, true};
    const std::vector<int64_t> dims = {1, mlp.tokens, mlp.hidden};
    const Twin dy = Normal(DType::kBF16, {1, mlp.tokens, mlp.in});
    const Twin w = Normal(DType::kBF16, Weight(mlp, hidden)), a = Normal(DType::kBF16, dims);
    const Twin da = Output(DType::kBF16, dims);
    const CudaQueue& queue = Cuda(cuda());
    for (const Tensor& to : {da.cuda, a.cuda}) {
      cuda::Relu2GradGemm(dy.cuda.bf16(), w.cuda.bf16(), a.cuda.bf16(), to.bf16(),
                          {mlp.tokens, mlp.hidden, mlp.in, hidden}, queue.sm_count(),
                          queue.stream());
    }
    cuda().Synchronize();
    EXPECT_TRUE(Bytes(a.cuda) == Bytes(da.cuda));
  }
}

// A lost step must show: NaN in a token's row is NaN in all of its outputs, and nowhere else.
TEST_F(Relu2GemmTest, NanStaysInItsRow) {
  constexpr int64_t kTokens = 208, kIn = 128, kHidden = 512, kBad = 133;
  for (const HiddenDim hidden : kBoth) {
    const std::vector<int64_t> dims = {1, kTokens, kHidden};
    const Twin drawn = Normal(DType::kBF16, {1, kTokens, kIn});
    std::vector<double> values = OnHost(drawn.cpu);
    values[kBad * kIn + 7] = std::nan("");
    const Twin u = Of(DType::kBF16, {1, kTokens, kIn}, values), before = Normal(DType::kBF16, dims);
    const Twin w = Normal(DType::kBF16, Weight({kTokens, kIn, kHidden, true}, hidden));
    const Twin a = Zeros(DType::kBF16, dims), b = Zeros(DType::kBF16, dims),
               da = Zeros(DType::kBF16, dims);
    LinearRelu2(u.cuda, w.cuda, hidden, a.cuda, b.cuda, cuda());
    LinearRelu2Grad(u.cuda, w.cuda, hidden, before.cuda, da.cuda, cuda());
    cuda().Synchronize();
    for (const Twin& out : {a, b, da}) {
      const std::vector<double> got = OnHost(out.cuda);
      for (int64_t i = 0; i < kTokens * kHidden; ++i) {
        ASSERT_EQ(std::isnan(got[i]), i / kHidden == kBad) << i;
      }
    }
  }
}

}  // namespace
}  // namespace kernels
