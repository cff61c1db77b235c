#include "kernels/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using Doubles = std::vector<double>;

// Tails of a vector, whole vectors, and several pieces of 2^15.
const std::vector<int64_t> kSizes = {1, 3, 8, 17, 96, 32768, 100001};

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

class ElementwiseTest : public ::testing::TestWithParam<int> {
 protected:
  const std::unique_ptr<Queue> queue_ = MakeCpuQueue(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Threads, ElementwiseTest, ::testing::Values(1, 2, 3));

TEST_P(ElementwiseTest, FillZeroStopsAtTheEnd) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI64}) {
    for (int64_t size : kSizes) {
      HostTensor x(dtype, {size + 1});
      std::memset(x.get().data(), 0x55, x.get().bytes());
      FillZero(x.get().Slice(0, size), *queue_);
      const char* bytes = static_cast<const char*>(x.get().data());
      const int64_t end = size * SizeOf(dtype);
      for (int64_t i = 0; i < x.get().bytes(); ++i) ASSERT_EQ(bytes[i], i < end ? 0 : 0x55) << i;
    }
  }
}

// Bit for bit what the scalar conversions of dtype.h do, NaN and infinity included.
TEST_P(ElementwiseTest, CopyConverts) {
  for (int64_t size : kSizes) {
    HostTensor x = RandomTensor(DType::kF32, {size}, 1);
    x.get().f32()[size - 1] = std::numeric_limits<float>::quiet_NaN();
    x.get().f32()[size / 2] = -std::numeric_limits<float>::infinity();
    HostTensor half(DType::kBF16, {1, size}), back(DType::kF32, {size});
    HostTensor same(DType::kBF16, {size});
    Copy(x, half, *queue_);
    Copy(half, back, *queue_);
    Copy(half, same, *queue_);
    EXPECT_TRUE(SameBits(half, same));
    for (int64_t i = 0; i < size; ++i) {
      const BF16 want = ToBF16(x.get().f32()[i]);
      ASSERT_EQ(half.get().bf16()[i], want) << i;
      const float wide = ToFloat(want);
      ASSERT_EQ(std::memcmp(&back.get().f32()[i], &wide, sizeof(float)), 0) << i;
    }
  }
}

TEST_P(ElementwiseTest, CopyOfOtherTypesKeepsBits) {
  HostTensor x(DType::kI64, {5}), y(DType::kI64, {5});
  for (int i = 0; i < 5; ++i) x.get().i64()[i] = int64_t{-1} << (12 * i);
  Copy(x, y, *queue_);
  EXPECT_TRUE(SameBits(x, y));
}

// One rounding: the f32 sum of two values is exact to half a unit, in bf16 after one more.
TEST_P(ElementwiseTest, AddAndSum) {
  for (int64_t size : kSizes) {
    const HostTensor a = RandomTensor(DType::kF32, {size}, 1);
    const HostTensor b = RandomTensor(DType::kF32, {size}, 2);
    HostTensor c(DType::kF32, {size}), added = RandomTensor(DType::kF32, {size}, 2);
    Sum(a, b, c, *queue_);
    Add(a, added, *queue_);
    EXPECT_TRUE(SameBits(c, added));
    const HostTensor x = RandomTensor(DType::kBF16, {size}, 3);
    HostTensor y = RandomTensor(DType::kBF16, {size}, 4);
    const Doubles left = x.ToDouble(), right = y.ToDouble();
    Add(x, y, *queue_);
    for (int64_t i = 0; i < size; ++i) {
      const double wide = static_cast<double>(a.get().f32()[i]) + b.get().f32()[i];
      ASSERT_EQ(c.get().f32()[i], static_cast<float>(wide)) << i;
      ASSERT_EQ(y.get().bf16()[i], ToBF16(static_cast<float>(left[i] + right[i]))) << i;
    }
  }
}

TEST_P(ElementwiseTest, SumInPlace) {
  const HostTensor a = RandomTensor(DType::kF32, {1001}, 1),
                   b = RandomTensor(DType::kF32, {1001}, 2);
  HostTensor want(DType::kF32, {1001}), left = RandomTensor(DType::kF32, {1001}, 1);
  HostTensor right = RandomTensor(DType::kF32, {1001}, 2);
  Sum(a, b, want, *queue_);
  Sum(left, b, left, *queue_);
  Sum(a, right, right, *queue_);
  EXPECT_TRUE(SameBits(left, want));
  EXPECT_TRUE(SameBits(right, want));
}

TEST_P(ElementwiseTest, ScaleMultiplies) {
  for (int64_t size : kSizes) {
    HostTensor x = RandomTensor(DType::kF32, {size}, 1);
    const Doubles before = x.ToDouble();
    const float factor = 0.3f;
    Scale(x, factor, *queue_);
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(x.get().f32()[i], static_cast<float>(before[i] * factor)) << i;
    }
  }
}

// An f32 sum of T values is off by at most T * 2^-24 of the sum of magnitudes.
TEST_P(ElementwiseTest, RowSumsMatchFloat64AndKeepSlotsApart) {
  for (int64_t tokens : {1, 16, 48, 1023}) {
    const HostTensor x = RandomTensor(DType::kF32, {3, tokens}, 1);
    HostTensor sums(DType::kF32, {3});
    RowSums(x, sums, *queue_);
    const Doubles values = x.ToDouble();
    for (int64_t slot = 0; slot < 3; ++slot) {
      double want = 0, size = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        want += values[slot * tokens + t];
        size += std::fabs(values[slot * tokens + t]);
      }
      EXPECT_NEAR(sums.get().f32()[slot], want, size * tokens * std::ldexp(1.0, -24));
      HostTensor alone(DType::kF32, {1});
      RowSums(x.get().Slice(slot, 1), alone, *MakeCpuQueue(1));
      EXPECT_TRUE(SameBits(alone, sums.get().Slice(slot, 1)));
    }
  }
}

TEST_P(ElementwiseTest, FirstNonFiniteFindsTheFirst) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t size : kSizes) {
      HostTensor index(DType::kI64, {1});
      Doubles values(size, 1.0);
      values[0] = -3.3e38;  // large, but finite in both types
      values[size - 1] = 1e-40;
      HostTensor x(dtype, {size});
      x.Set(values);
      FirstNonFinite(x, index, *queue_);
      EXPECT_EQ(index.get().i64()[0], -1) << dtype << " " << size;
      for (float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
          Doubles spoilt = values;
          spoilt[at] = bad;
          spoilt[size - 1] = bad;
          x.Set(spoilt);
          FirstNonFinite(x, index, *queue_);
          EXPECT_EQ(index.get().i64()[0], at) << dtype << " " << size;
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, PoisonIfFoundLooksAtEveryIndex) {
  for (int64_t size : {1, 3, 300}) {
    HostTensor found(DType::kI64, {size}), y(DType::kF32, {1});
    for (int64_t i = 0; i < size; ++i) found.get().i64()[i] = -1;
    y.Set({1.25});
    PoisonIfFound(found, y, *queue_);
    EXPECT_EQ(y.get().f32()[0], 1.25f);
    for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
      for (int64_t position : {int64_t{0}, int64_t{1} << 40}) {
        found.get().i64()[at] = position;
        y.Set({1.25});
        PoisonIfFound(found, y, *queue_);
        EXPECT_TRUE(std::isnan(y.get().f32()[0])) << size << " " << at;
        found.get().i64()[at] = -1;
      }
    }
  }
}

TEST_P(ElementwiseTest, ClearUnlessFiniteLeavesTheGuardAloneOtherwise) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t size : kSizes) {
    HostTensor guard(DType::kI32, {1}), x(DType::kF32, {size});
    x.get().f32()[size - 1] = std::numeric_limits<float>::max();
    for (int32_t before : {0, 1, 7}) {
      guard.get().i32()[0] = before;
      ClearUnlessFinite(x, guard, *queue_);
      EXPECT_EQ(guard.get().i32()[0], before) << size;
    }
    for (float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
        const float before = x.get().f32()[at];
        x.get().f32()[at] = bad;
        guard.get().i32()[0] = 7;
        ClearUnlessFinite(x, guard, *queue_);
        EXPECT_EQ(guard.get().i32()[0], 0) << size << " " << at;
        x.get().f32()[at] = before;
      }
    }
  }
}

TEST(ElementwiseDeathTest, SizesAndTypesInTheMessage) {
  const HostTensor x(DType::kF32, {3}), y(DType::kF32, {4}), tokens(DType::kI32, {3});
  const HostTensor half(DType::kBF16, {3});
  const auto queue = MakeCpuQueue(1);
  EXPECT_DEATH(Copy(x, y, *queue), "Copy: x f32 \\[3\\], y f32 \\[4\\]");
  EXPECT_DEATH(Copy(x, tokens, *queue), "Copy: x f32 \\[3\\], y i32 \\[3\\]");
  EXPECT_DEATH(Add(x, half, *queue), "Add: x f32 \\[3\\], y bf16 \\[3\\]");
  EXPECT_DEATH(Sum(x, x, y, *queue), "Sum: f32 \\[3\\]");
  EXPECT_DEATH(Scale(half, 2.0f, *queue), "Scale: bf16 \\[3\\]");
  EXPECT_DEATH(RowSums(x, y, *queue), "RowSums: x f32 \\[3\\]");
  EXPECT_DEATH(FirstNonFinite(x, y, *queue), "FirstNonFinite: x f32 \\[3\\]");
  EXPECT_DEATH(PoisonIfFound(x, y, *queue), "PoisonIfFound: found f32 \\[3\\], y f32 \\[4\\]");
  EXPECT_DEATH(ClearUnlessFinite(x, tokens, *queue), "ClearUnlessFinite: x f32 \\[3\\], guard i32");
}

}  // namespace
}  // namespace kernels
