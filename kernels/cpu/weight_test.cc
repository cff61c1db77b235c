#include "kernels/ops/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

std::vector<uint8_t> Bits(const Tensor& t) {
  const auto* bytes = static_cast<const uint8_t*>(t.data());
  return {bytes, bytes + t.bytes()};
}

// A vector, its tail, several blocks and a part of one.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 1}, {3, 5}, {24, 96}, {131, 129}, {4, 100, 123}};

HostTensor Scalars() {
  HostTensor scalars(DType::kF32, {3});
  scalars.Set({5, 0.7, -3});
  return scalars;
}

TEST(Weight, ScaleRoundsTheProductOnce) {
  for (const std::vector<int64_t>& dims : kShapes) {
    const HostTensor w = RandomTensor(DType::kBF16, dims, 1), y(DType::kBF16, dims);
    ScaleWeight(w, Scalars(), 1, y, *MakeCpuQueue(1));
    for (int64_t i = 0; i < w.get().size(); ++i) {
      ASSERT_EQ(y.get().bf16()[i], ToBF16(0.7f * ToFloat(w.get().bf16()[i]))) << i;
    }
    for (int threads : {2, 3}) {
      const HostTensor more(DType::kBF16, dims);
      ScaleWeight(w, Scalars(), 1, more, *MakeCpuQueue(threads));
      EXPECT_EQ(Bits(more), Bits(y)) << threads;
    }
  }
}

// Whole numbers: all sums are exact, and any term that is missed or counted twice shows.
TEST(Weight, ScaleGradIsExactOnWholeNumbers) {
  for (const std::vector<int64_t>& dims : kShapes) {
    HostTensor w(DType::kBF16, dims), dw(DType::kF32, dims), dscalars(DType::kF32, {3});
    std::vector<double> weights(w.get().size()), gradients(w.get().size());
    double want = 1000;
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<double>(i % 17) - 8;
      gradients[i] = static_cast<double>(i * 7 % 23) - 9;
      want += weights[i] * gradients[i];
    }
    w.Set(weights);
    dw.Set(gradients);
    dscalars.Set({10, 20, 1000});
    ScaleWeightGrad(w, Scalars(), 2, dw, dscalars, *MakeCpuQueue(2));
    EXPECT_EQ(dscalars.ToDouble(), (std::vector<double>{10, 20, want}));
    const std::vector<double> got = dw.ToDouble();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], -3 * gradients[i]) << i;
  }
}

TEST(Weight, ScaleGradMatchesFloat64AndDoesNotDependOnThreads) {
  for (const std::vector<int64_t>& dims : kShapes) {
    const HostTensor w = RandomTensor(DType::kBF16, dims, 1);
    const auto run = [&](int threads) {
      HostTensor dw = RandomTensor(DType::kF32, dims, 2), dscalars(DType::kF32, {3});
      ScaleWeightGrad(w, Scalars(), 1, dw, dscalars, *MakeCpuQueue(threads));
      return std::pair{std::move(dw), std::move(dscalars)};
    };
    const auto [dw, dscalars] = run(1);
    const HostTensor gradient = RandomTensor(DType::kF32, dims, 2);
    const std::vector<double> a = gradient.ToDouble(), b = w.ToDouble(), got = dw.ToDouble();
    double want = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      want += a[i] * b[i];
      ASSERT_EQ(got[i], 0.7f * static_cast<float>(a[i])) << i;
    }
    // Random signs: the sum and its errors grow as the root of the number of terms of size 1.
    EXPECT_NEAR(dscalars.ToDouble()[1], want, 1e-5 * std::sqrt(a.size()));
    EXPECT_EQ(dscalars.ToDouble()[0], 0);
    EXPECT_EQ(dscalars.ToDouble()[2], 0);
    for (int threads : {2, 3}) {
      const auto [more_dw, more_dscalars] = run(threads);
      EXPECT_EQ(Bits(more_dw), Bits(dw)) << threads;
      EXPECT_EQ(Bits(more_dscalars), Bits(dscalars)) << threads;
    }
  }
}

// One element, one row, one column, tiles and their edges, more than one strip either way.
const std::vector<std::pair<int64_t, int64_t>> kMatrices = {
    {1, 1}, {1, 77}, {77, 1}, {32, 64}, {33, 31}, {5, 1100}, {1100, 5}, {1030, 97}, {96, 384}};

TEST(Weight, AN_29_TransposeCopyMovesEveryBit) {
  for (const auto& [rows, cols] : kMatrices) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const HostTensor x = RandomTensor(dtype, {rows, cols}, 1);
      for (int threads : {1, 2, 3}) {
        const HostTensor y(dtype, {cols, rows}), back(dtype, {rows, cols});
        TransposeCopy(x, y, *MakeCpuQueue(threads));
        const std::vector<double> from = x.ToDouble(), to = y.ToDouble();
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            ASSERT_EQ(to[j * rows + i], from[i * cols + j]) << i << ", " << j << " of " << x.get();
          }
        }
        TransposeCopy(y, back, *MakeCpuQueue(threads));
        EXPECT_EQ(Bits(back), Bits(x)) << x.get();
      }
    }
  }
}

// Not only numbers: a NaN's payload passes as it is.
TEST(Weight, TransposeCopyKeepsNaNs) {
  for (uint16_t bits : {0x7FC1, 0xFFAB, 0x8000}) {
    const HostTensor x(DType::kBF16, {2, 3}), y(DType::kBF16, {3, 2});
    x.get().bf16()[5].bits = bits;
    TransposeCopy(x, y, *MakeCpuQueue(1));
    EXPECT_EQ(y.get().bf16()[5].bits, bits);
  }
}

TEST(Weight, AN_29_TransposeAddIsOneSumOfEachElement) {
  for (const auto& [rows, cols] : kMatrices) {
    const HostTensor x = RandomTensor(DType::kF32, {rows, cols}, 1);
    const HostTensor before = RandomTensor(DType::kF32, {cols, rows}, 2);
    for (int threads : {1, 2, 3}) {
      const HostTensor y = RandomTensor(DType::kF32, {cols, rows}, 2);
      TransposeAdd(x, y, *MakeCpuQueue(threads));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          const int64_t at = j * rows + i;
          ASSERT_EQ(y.get().f32()[at], before.get().f32()[at] + x.get().f32()[i * cols + j])
              << i << ", " << j << " of " << x.get();
        }
      }
    }
  }
}

TEST(WeightDeathTest, ShapesInTheMessage) {
  const HostTensor x(DType::kF32, {2, 3}), y(DType::kF32, {2, 3}), w(DType::kBF16, {2, 3});
  const auto queue = MakeCpuQueue(1);
  EXPECT_DEATH(TransposeCopy(x, y, *queue), "TransposeCopy: x f32 \\[2, 3\\], y f32 \\[2, 3\\]");
  EXPECT_DEATH(TransposeAdd(w, w, *queue), "TransposeAdd: x bf16 \\[2, 3\\]");
  EXPECT_DEATH(ScaleWeight(w, Scalars(), 3, w, *queue), "ScaleWeight: index 3");
}

}  // namespace
}  // namespace kernels
