// Ops on whole weights on CUDA against the CPU's.
#include "kernels/ops/weight.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

class WeightTest : public CudaTest {
 protected:
  // Elements [1, n] of n + 1, which are not aligned.
  static Twin Shifted(const Twin& t, std::vector<int64_t> dims) {
    const int64_t n = t.cpu.size() - 1;
    return {t.cpu.Reshape({-1}).Slice(1, n).Reshape(dims),
            t.cuda.Reshape({-1}).Slice(1, n).Reshape(dims)};
  }
};

constexpr int64_t kSizes[] = {1, 7, 8, 9, 1003, 8192, 8193, 768 * 768, (1 << 22) + 5};

TEST_F(WeightTest, Scale) {
  const Twin scalars = Of(DType::kF32, {3}, {5, 0.7, -3});
  for (int64_t n : kSizes) {
    for (bool aligned : {true, false}) {
      Twin w = Normal(DType::kBF16, {n + !aligned}), y = Output(DType::kBF16, {n + !aligned});
      if (!aligned) w = Shifted(w, {n}), y = Shifted(y, {n});
      Both([&](Side side, Queue& queue) {
        ScaleWeight(w.on(side), scalars.on(side), 1, y.on(side), queue);
      });
      ExpectSameBits(y);
    }
  }
}

// The gradient is one product each, the same bits; the sums differ by their order.
TEST_F(WeightTest, ScaleGrad) {
  const Twin scalars = Of(DType::kF32, {3}, {5, 0.7, -3});
  for (int64_t n : kSizes) {
    const Twin w = Normal(DType::kBF16, {n + 1}), dw = Normal(DType::kF32, {n + 1});
    const std::vector<double> weights = OnHost(w.cpu), start = OnHost(dw.cpu);
    const Twin dscalars = Of(DType::kF32, {3}, {10, 20, 30});
    const Twin wa{w.cpu.Slice(0, n), w.cuda.Slice(0, n)};
    const Twin dwa{dw.cpu.Slice(0, n), dw.cuda.Slice(0, n)};
    const auto run = [&](Side side, Queue& queue) {
      ScaleWeightGrad(wa.on(side), scalars.on(side), 1, dwa.on(side), dscalars.on(side), queue);
    };
    Both(run);
    ExpectSameBits(dw);  // the last one, which is not part of it, as well
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += start[i] * weights[i];
    const std::vector<double> got = OnHost(dscalars.cuda);
    EXPECT_EQ(got[0], 10);
    EXPECT_EQ(got[2], 30);
    // Random signs: terms of size 1, whose sum and errors grow as the root of their number.
    EXPECT_NEAR(got[1], 20 + sum, 1e-5 * std::sqrt(n) + 4e-6) << n;
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {dwa.cuda, dscalars.cuda});
  }
}

// The same numbers at another alignment give the same bits.
TEST_F(WeightTest, ScaleGradDoesNotDependOnAlignment) {
  const Twin scalars = Of(DType::kF32, {1}, {0.7});
  const int64_t n = 3 * 8192 + 13;
  const Twin w = Normal(DType::kBF16, {n}), dw = Normal(DType::kF32, {n});
  const Twin sum = Zeros(DType::kF32, {1}), other_sum = Zeros(DType::kF32, {1});
  const Twin other_w = Shifted(Output(DType::kBF16, {n + 1}), {n});
  const Twin other_dw = Shifted(Output(DType::kF32, {n + 1}), {n});
  Set(other_w.cuda, OnHost(w.cuda));
  Set(other_dw.cuda, OnHost(dw.cuda));
  ScaleWeightGrad(w.cuda, scalars.cuda, 0, dw.cuda, sum.cuda, cuda());
  ScaleWeightGrad(other_w.cuda, scalars.cuda, 0, other_dw.cuda, other_sum.cuda, cuda());
  cuda().Synchronize();
  EXPECT_EQ(Bytes(sum.cuda), Bytes(other_sum.cuda));
  EXPECT_EQ(Bytes(dw.cuda), Bytes(other_dw.cuda));
}

// Whole tiles (64 x 64 of f32, 128 x 128 of bf16), their edges, and sides of no whole vectors.
const std::vector<std::pair<int64_t, int64_t>> kMatrices = {
    {1, 1},    {1, 77},   {77, 1},    {63, 65},    {64, 64},    {128, 256},
    {127, 64}, {64, 127}, {132, 100}, {136, 1000}, {257, 1025}, {768, 3072}};

TEST_F(WeightTest, AN_29_TransposeCopy) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [rows, cols] : kMatrices) {
      for (bool x_aligned : {true, false}) {
        for (bool y_aligned : {true, false}) {
          const int64_t n = rows * cols;
          Twin x = Normal(dtype, {n + !x_aligned}), y = Output(dtype, {n + !y_aligned});
          x = x_aligned ? Twin{x.cpu.Reshape({rows, cols}), x.cuda.Reshape({rows, cols})}
                        : Shifted(x, {rows, cols});
          y = y_aligned ? Twin{y.cpu.Reshape({cols, rows}), y.cuda.Reshape({cols, rows})}
                        : Shifted(y, {cols, rows});
          Both([&](Side side, Queue& queue) { TransposeCopy(x.on(side), y.on(side), queue); });
          ExpectSameBits(y);
        }
      }
    }
  }
}

TEST_F(WeightTest, AN_29_TransposeAdd) {
  for (const auto& [rows, cols] : kMatrices) {
    for (bool aligned : {true, false}) {
      const int64_t n = rows * cols;
      Twin x = Normal(DType::kF32, {n + !aligned}), y = Normal(DType::kF32, {n + !aligned});
      x = aligned ? Twin{x.cpu.Reshape({rows, cols}), x.cuda.Reshape({rows, cols})}
                  : Shifted(x, {rows, cols});
      y = aligned ? Twin{y.cpu.Reshape({cols, rows}), y.cuda.Reshape({cols, rows})}
                  : Shifted(y, {cols, rows});
      Both([&](Side side, Queue& queue) { TransposeAdd(x.on(side), y.on(side), queue); });
      ExpectSameBits(y);
    }
  }
}

// Nothing beyond the matrices is written.
TEST_F(WeightTest, TransposeStaysInside) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const int64_t rows = 100, cols = 132, n = rows * cols;
    const Twin x = Normal(dtype, {rows, cols}), y = Normal(dtype, {n + 64});
    const std::vector<double> before = OnHost(y.cuda);
    TransposeCopy(x.cuda, y.cuda.Slice(0, n).Reshape({cols, rows}), cuda());
    cuda().Synchronize();
    const std::vector<double> after = OnHost(y.cuda);
    for (int64_t i = n; i < n + 64; ++i) EXPECT_EQ(after[i], before[i]) << i;
  }
}

}  // namespace
}  // namespace kernels
