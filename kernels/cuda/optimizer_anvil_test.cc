// The ops of the rule "anvil" on CUDA against the CPU's: momentum on two rails, the norm from a
// Gram matrix, decay by a gate.
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
constexpr double kNeighbour = 2 * kBF16Ulp;

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

}  // namespace
}  // namespace kernels
