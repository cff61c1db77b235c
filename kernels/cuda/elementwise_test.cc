#include "kernels/ops/elementwise.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

using Doubles = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Less than a vector, whole vectors with and without a tail, many blocks.
const std::vector<int64_t> kSizes = {1, 3, 8, 17, 1024, 100001};

// Elements [begin, begin + size). A begin that is no multiple of 8 is on no vector's boundary.
Twin Part(const Twin& x, int64_t begin, int64_t size) {
  return {x.cpu.Slice(begin, size), x.cuda.Slice(begin, size)};
}

class CudaElementwiseTest : public CudaTest {
 protected:
  void Put(const Twin& x, int64_t at, double value) {
    Set(Part(x, at, 1).cpu, {value});
    Set(Part(x, at, 1).cuda, {value});
  }
};

TEST_F(CudaElementwiseTest, FillZeroStopsAtTheEnd) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t size : kSizes) {
      const Twin x = Normal(dtype, {size + 2});
      Both([&](Side side, Queue& queue) { FillZero(Part(x, 1, size).on(side), queue); });
      ExpectSameBits(x);
    }
  }
}

TEST_F(CudaElementwiseTest, CopyConvertsBitForBit) {
  for (DType from : {DType::kF32, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kBF16}) {
      for (int64_t size : kSizes) {
        for (int64_t x_begin : {0, 1}) {
          for (int64_t y_begin : {0, 1}) {
            const Twin x = Normal(from, {size + 1}), y = Normal(to, {size + 2});
            Both([&](Side side, Queue& queue) {
              Copy(Part(x, x_begin, size).on(side), Part(y, y_begin, size).on(side), queue);
            });
            ExpectSameBits(y);
          }
        }
      }
    }
  }
}

// 1 + 2^-8 lies between two bf16 values, as does 1 + 3 * 2^-8: ties go to the even one.
TEST_F(CudaElementwiseTest, CopyRoundsTiesToEvenAndKeepsInfinityAndNaN) {
  const Doubles values = {1 + 0x1p-8, 1 + 3 * 0x1p-8, -1 - 0x1p-8, 3.4e38, kInfinity,
                          -kInfinity, 1e-40,          -0.0,        kNaN};
  const int64_t size = values.size();
  const Twin x = Of(DType::kF32, {size}, values), y = Output(DType::kBF16, {size});
  Both([&](Side side, Queue& queue) { Copy(x.on(side), y.on(side), queue); });
  ExpectSameBits(Part(y, 0, size - 1));
  EXPECT_TRUE(std::isnan(OnHost(y.cuda).back()));  // its payload may be another
}

TEST_F(CudaElementwiseTest, AddSumAndScaleBitForBit) {
  for (int64_t size : kSizes) {
    for (int64_t begin : {0, 1}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        const Twin x = Normal(dtype, {size + 1}), y = Normal(dtype, {size + 2});
        Both([&](Side side, Queue& queue) {
          Add(Part(x, begin, size).on(side), Part(y, begin, size).on(side), queue);
        });
        ExpectSameBits(y);
      }
      const Twin a = Normal(DType::kF32, {size + 1}), b = Normal(DType::kF32, {size + 1});
      const Twin c = Normal(DType::kF32, {size + 2});
      Both([&](Side side, Queue& queue) {
        Sum(Part(a, begin, size).on(side), Part(b, 0, size).on(side), Part(c, begin, size).on(side),
            queue);
        Sum(Part(a, begin, size).on(side), Part(b, begin, size).on(side),
            Part(b, begin, size).on(side), queue);
        Scale(Part(a, begin, size).on(side), 0.3f, queue);
      });
      ExpectSameBits(c);
      ExpectSameBits(b);
      ExpectSameBits(a);
    }
  }
}

// Each backend's sum of T normal values is off by some sqrt(T) * 2^-24 of the sum's size.
TEST_F(CudaElementwiseTest, RowSumsKeepSlotsApart) {
  for (int64_t tokens : {1, 16, 48, 1023, 49152}) {
    const Twin x = Normal(DType::kF32, {3, tokens}), sums = Output(DType::kF32, {3});
    Both([&](Side side, Queue& queue) { RowSums(x.on(side), sums.on(side), queue); });
    ExpectClose(sums, 1e-5, 1e-6 * std::sqrt(static_cast<double>(tokens)));
    ExpectRepeats([&](Queue& queue) { RowSums(x.cuda, sums.cuda, queue); }, {sums.cuda});
    for (int64_t slot = 0; slot < 3; ++slot) {
      const Twin alone = Output(DType::kF32, {1});
      RowSums(x.cuda.Slice(slot, 1), alone.cuda, cuda());
      EXPECT_EQ(Bytes(alone.cuda), Bytes(sums.cuda.Slice(slot, 1))) << tokens << " " << slot;
    }
  }
}

TEST_F(CudaElementwiseTest, FirstNonFiniteFindsTheFirst) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t size : kSizes) {
      for (int64_t begin : {0, 1}) {
        const Twin all = Zeros(dtype, {size + 2}), index = Output(DType::kI64, {1});
        Put(all, begin + size, kNaN);  // past the end
        const Twin x = Part(all, begin, size);
        Put(x, 0, -3.3e38);  // large, but finite in both types
        const auto find = [&](Side side, Queue& queue) {
          FirstNonFinite(x.on(side), index.on(side), queue);
        };
        Both(find);
        ExpectSameBits(index, "none");
        for (int64_t at : {size - 1, size / 2, size / 3, int64_t{0}}) {
          for (double bad : {kNaN, -kInfinity, kInfinity}) {
            Put(x, at, bad);
            Both(find);
            ExpectSameBits(index);
          }
        }
      }
    }
  }
}

// More than one batch of every thread of the grid, and an end that is no whole vector.
TEST_F(CudaElementwiseTest, FirstNonFiniteOfALargeTensor) {
  constexpr int64_t kSize = 9000003;
  const Twin x = Zeros(DType::kF32, {kSize}), index = Output(DType::kI64, {1});
  for (int64_t at : {kSize - 1, int64_t{8999999}, int64_t{4325376}, int64_t{4325375}, int64_t{7}}) {
    Put(x, at, kNaN);
    Both([&](Side side, Queue& queue) { FirstNonFinite(x.on(side), index.on(side), queue); });
    ExpectSameBits(index);
  }
  ExpectRepeats([&](Queue& queue) { FirstNonFinite(x.cuda, index.cuda, queue); }, {index.cuda});
}

TEST_F(CudaElementwiseTest, PoisonIfFoundLooksAtEveryIndex) {
  const Twin good = Zeros(DType::kF32, {2}), bad = Of(DType::kF32, {2}, {0, kNaN});
  for (int64_t size : {1, 3, 700}) {
    for (int64_t at : {int64_t{-1}, int64_t{0}, size / 2, size - 1}) {
      const Twin found = Output(DType::kI64, {size}), y = Of(DType::kF32, {1}, {1.25});
      Both([&](Side side, Queue& queue) {
        for (int64_t i = 0; i < size; ++i) {
          FirstNonFinite((i == at ? bad : good).on(side), found.on(side).Slice(i, 1), queue);
        }
        PoisonIfFound(found.on(side), y.on(side), queue);
      });
      ExpectSameBits(found);
      EXPECT_EQ(std::isnan(OnHost(y.cuda)[0]), at >= 0) << size << " " << at;
      ExpectSameBits(y);
    }
  }
}

TEST_F(CudaElementwiseTest, ClearUnlessFiniteLeavesTheGuardAloneOtherwise) {
  for (int64_t size : kSizes) {
    for (int64_t begin : {0, 1}) {
      const Twin all = Normal(DType::kF32, {size + 2});
      Put(all, begin + size, kNaN);  // past the end
      const Twin x = Part(all, begin, size);
      for (int64_t at : {int64_t{-1}, size - 1, size / 2, int64_t{0}}) {
        for (double bad : {kInfinity, -kInfinity, kNaN}) {
          if (at >= 0) Put(x, at, bad);
          const Twin guard = Ints({1}, 7, 8);
          Both([&](Side side, Queue& queue) {
            ClearUnlessFinite(x.on(side), guard.on(side), queue);
          });
          EXPECT_EQ(OnHost(guard.cuda)[0], at < 0 ? 7 : 0) << size << " " << at;
          ExpectSameBits(guard);
          if (at >= 0) Put(x, at, 0.5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kernels
