// The ops of the rule "anvil" on CUDA against the CPU's: momentum on two rails, the norm from a
// Gram matrix, decay by a gate. And Adam of many parameters.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/optimizer.h"

namespace kernels {
namespace {

// Two values that f32 cannot tell apart may round to neighbours in bf16.
constexpr double kNeighbour = 2 * kBf16Roundoff;

class AnvilTest : public CudaTest {
 protected:
  TwinRailArgs Rails(Side side, const Twin& g, const Twin& fast, const Twin& slow,
                     const Twin& rates, const Twin& u) {
    return {.g = g.on(side),
            .fast = fast.on(side),
            .slow = slow.on(side),
            .rates = rates.on(side),
            .u = u.on(side),
            .slow_rate = 0.02f,
            .gradient = DType::kBF16};
  }
};

// The same f32 operations in the same order; a CPU without fused multiply-add rounds products too.
TEST_F(AnvilTest, AN_05_TwinRail) {
  for (int64_t n : {1, 3, 7, 1003, 1 << 18}) {
    const Twin g = Normal(DType::kF32, {n}), u = Output(DType::kBF16, {n});
    const Twin fast = Normal(DType::kF32, {n}, 0.1), slow = Normal(DType::kF32, {n}, 0.1);
    const Twin rates = Of(DType::kF32, {3}, {0.93, 0.85, 0.4385});
    Both([&](Side side, Queue& queue) {
      TwinRailUpdate(Rails(side, g, fast, slow, rates, u), queue);
    });
    ExpectClose(fast, 1e-6, 0, "fast");
    ExpectClose(slow, 1e-6, 0, "slow");
    ExpectClose(u, kNeighbour, 0, "u");
  }
}

TEST_F(AnvilTest, ZeroGuardChangesNoRail) {
  const int64_t n = 1003;
  const Twin g = Normal(DType::kF32, {n}), u = Output(DType::kBF16, {n});
  const Twin fast = Normal(DType::kF32, {n}), slow = Normal(DType::kF32, {n});
  const Twin rates = Of(DType::kF32, {3}, {0.93, 0.85, 0.4385});
  TwinRailArgs args = Rails(Side::kCuda, g, fast, slow, rates, u);
  for (int32_t on : {0, 1}) {
    const std::vector<uint8_t> before = Bytes(fast.cuda), slow_before = Bytes(slow.cuda);
    args.guard = Ints({1}, on, on + 1).cuda;
    TwinRailUpdate(args, cuda());
    cuda().Synchronize();
    EXPECT_EQ(Bytes(fast.cuda) == before, on == 0);
    EXPECT_EQ(Bytes(slow.cuda) == slow_before, on == 0);
  }
}

// The traces differ in the last bits of f32.
TEST_F(AnvilTest, AN_10_GramNorm) {
  for (const auto& [rows, cols] : {std::pair{1, 12}, {6, 12}, {5, 7}, {131, 130}, {256, 768}}) {
    const Twin u = Normal(DType::kBF16, {3, rows, cols});
    const Twin x = Output(DType::kBF16, {3, rows, cols});
    const int64_t side = std::min(rows, cols);
    const Twin gram = Output(DType::kBF16, {3, side, side});
    MatMulOptions options;
    (rows <= cols ? options.trans_b : options.trans_a) = true;
    MatMul(u.cpu, u.cpu, gram.cpu, options, cpu());
    cpu().Synchronize();
    const std::vector<double> start = OnHost(gram.cpu);
    Set(gram.cuda, start);
    const auto run = [&](Side on, Queue& queue) {
      NormalizeByGram({.u = u.on(on),
                       .gram = gram.on(on),
                       .x = x.on(on),
                       .scale = 1.05f,
                       .lone_scale = 1.1f,
                       .eps = 1e-6f},
                      queue);
    };
    Both(run);
    ExpectClose(x, kNeighbour, 0, "x");
    ExpectClose(gram, kNeighbour, 0, "gram");
    Set(gram.cuda, start);
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {x.cuda, gram.cuda});
  }
}

TEST_F(AnvilTest, GramNormOfZero) {
  const Twin u = Zeros(DType::kBF16, {2, 6, 12}), x = Output(DType::kBF16, {2, 6, 12});
  const Twin gram = Zeros(DType::kBF16, {2, 6, 6});
  NormalizeByGram({.u = u.cuda, .gram = gram.cuda, .x = x.cuda, .eps = 1e-6f}, cuda());
  cuda().Synchronize();
  for (const Twin* t : {&x, &gram}) {
    for (double value : OnHost(t->cuda)) EXPECT_EQ(value, 0.0);
  }
}

// Each product and difference is rounded by itself: the same bits. Matrix 1 is frozen.
TEST_F(AnvilTest, AN_12_AN_13_DecayGate) {
  for (const auto& [rows, cols] : {std::pair{1, 12}, {3, 5}, {130, 131}, {768, 768}}) {
    const std::vector<int64_t> dims = {3, rows, cols};
    const Twin p = Normal(DType::kBF16, dims), o = Normal(DType::kBF16, dims, 0.1);
    const Twin gate = Normal(DType::kF32, dims);
    // Zero bits are as good as others.
    const Twin halves = Zeros(DType::kBF16, dims);
    const auto mantissa = [&](Side side) {
      const Tensor t = halves.on(side);
      return Tensor(t.data(), DType::kU16, dims,
                    side == Side::kCpu ? DeviceKind::kCpu : DeviceKind::kCuda);
    };
    const Twin lr = Of(DType::kF32, {3}, {0.05, 0, 0.3});
    const Twin decay = Of(DType::kF32, {3}, {0.1, 0.9, 0.5});
    const std::vector<uint8_t> frozen = Bytes(p.cuda.At(1));
    Both([&](Side side, Queue& queue) {
      SplitMatrixUpdate({.p = p.on(side),
                         .mantissa = mantissa(side),
                         .o = o.on(side),
                         .gate = gate.on(side),
                         .lr = lr.on(side),
                         .decay = decay.on(side),
                         .cautious = true},
                        queue);
    });
    ExpectSameBits(p, "p");
    ExpectSameBits(halves, "mantissa");
    EXPECT_EQ(Bytes(p.cuda.At(1)), frozen);
  }
}

// More parameters than a launch takes, of sizes that align nothing; every third is inactive.
class FlatTest : public CudaTest {
 protected:
  FlatTest() {
    for (int64_t i = 0; i < 40; ++i) sizes_.push_back(i == 20 ? 70001 : 1 + 37 * i % 300);
  }
  void Make(DType weights, DType moments, bool cautious) {
    int64_t total = 0;
    std::vector<double> table;
    p_.clear();
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const double k = static_cast<double>(i % 5);
      total += sizes_[i];
      p_.push_back(Normal(weights, {sizes_[i]}));
      for (double x : {0.01 * (k + 1), cautious ? 0.002 * k : 1 - 0.001 * k, 1e-8, 0.9 - 0.05 * k,
                       0.99 - 0.01 * k, i % 3 == 2 ? 0.0 : 1.0}) {
        table.push_back(x);
      }
    }
    g_ = Normal(DType::kF32, {total});
    m_ = Normal(moments, {total}, 0.1);
    v_ = Uniform(moments, {total}, 0.0, 1.0);
    rates_ = Of(DType::kF32, {static_cast<int64_t>(sizes_.size()), 6}, table);
  }
  AdamFlatArgs Args(Side side, bool cautious) const {
    AdamFlatArgs args{.p = {},
                      .g = g_.on(side),
                      .m = m_.on(side),
                      .v = v_.on(side),
                      .rates = rates_.on(side),
                      .cautious = cautious};
    for (const Twin& p : p_) args.p.push_back(p.on(side));
    return args;
  }

  std::vector<int64_t> sizes_;
  std::vector<Twin> p_;
  Twin g_, m_, v_, rates_;
};

TEST_F(FlatTest, AN_18_MatchesTheCpu) {
  for (DType weights : {DType::kF32, DType::kBF16}) {
    for (DType moments : {DType::kF32, DType::kBF16}) {
      for (bool cautious : {false, true}) {
        Make(weights, moments, cautious);
        const std::vector<uint8_t> inactive = Bytes(p_[2].cuda), active = Bytes(p_[3].cuda);
        Both([&](Side side, Queue& queue) { AdamFlat(Args(side, cautious), queue); });
        // As one AdamUpdate.
        const double weight = weights == DType::kF32 ? 1e-6 : kNeighbour;
        const double moment = moments == DType::kF32 ? 1e-6 : kNeighbour;
        for (const Twin& p : p_) ExpectClose(p, weight, 0, "p");
        ExpectClose(m_, moment, 0, "m");
        ExpectClose(v_, moment, 0, "v");
        EXPECT_EQ(Bytes(p_[2].cuda), inactive);
        EXPECT_NE(Bytes(p_[3].cuda), active);
      }
    }
  }
}

TEST_F(FlatTest, IsAdamUpdateOfEachBitForBit) {
  Make(DType::kBF16, DType::kF32, true);
  std::vector<std::vector<uint8_t>> each;
  const std::vector<double> table = OnHost(rates_.cuda), m = OnHost(m_.cuda), v = OnHost(v_.cuda);
  int64_t begin = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const Twin p = Zeros(DType::kBF16, {sizes_[i]});
    Set(p.cuda, OnHost(p_[i].cuda));
    const auto part = [&](const std::vector<double>& all) {
      return Of(DType::kF32, {sizes_[i]}, {all.begin() + begin, all.begin() + begin + sizes_[i]})
          .cuda;
    };
    if (table[6 * i + 5] != 0) {
      AdamUpdate({.p = p.cuda,
                  .g = g_.cuda.Slice(begin, sizes_[i]),
                  .m = part(m),
                  .v = part(v),
                  .rates = rates_.cuda.At(static_cast<int64_t>(i)).Slice(0, 3),
                  .beta1 = static_cast<float>(table[6 * i + 3]),
                  .beta2 = static_cast<float>(table[6 * i + 4]),
                  .cautious = true},
                 cuda());
      cuda().Synchronize();
    }
    each.push_back(Bytes(p.cuda));
    begin += sizes_[i];
  }
  AdamFlat(Args(Side::kCuda, true), cuda());
  cuda().Synchronize();
  for (size_t i = 0; i < sizes_.size(); ++i) EXPECT_EQ(Bytes(p_[i].cuda), each[i]) << i;
}

TEST_F(FlatTest, ZeroGuardChangesNothing) {
  for (int32_t on : {0, 1}) {
    Make(DType::kF32, DType::kF32, true);
    const std::vector<uint8_t> p = Bytes(p_[0].cuda), m = Bytes(m_.cuda), v = Bytes(v_.cuda);
    AdamFlatArgs args = Args(Side::kCuda, true);
    args.guard = Ints({1}, on, on + 1).cuda;
    AdamFlat(args, cuda());
    cuda().Synchronize();
    EXPECT_EQ(Bytes(p_[0].cuda) == p, on == 0);
    EXPECT_EQ(Bytes(m_.cuda) == m, on == 0);
    EXPECT_EQ(Bytes(v_.cuda) == v, on == 0);
  }
}

}  // namespace
}  // namespace kernels
