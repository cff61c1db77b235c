// A weight's gradient from fp8 operands. Small integers, so that every sum is exact in whatever
// order; through the head, head_test.cc has it at random operands.
#include "kernels/cuda/fp8_grad_gemm.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

struct Sizes {
  int64_t rows, classes, dim;
};

// Less than a product of 32 rows; part of a place of the ring; many times round it; part of a tile
// of classes and of features; several tiles of both; the vocabulary.
constexpr Sizes kSizes[] = {{16, 16, 16},     {48, 128, 192},   {208, 400, 80},
                            {1040, 272, 400}, {4112, 144, 208}, {32, 50304, 768}};

constexpr int kLargest = 3;
constexpr uint8_t kE5M2[] = {0x00, 0x3C, 0x40, 0x42};  // 0 to 3
constexpr uint8_t kE4M3[] = {0x00, 0x38, 0x40, 0x44};
constexpr uint8_t kE5M2Nan = 0x7F;

class Fp8GradGemmTest : public CudaTest {
 protected:
  void SetUp() override {
    if (!cuda::Fp8GradGemmSupports({16, 16, 16})) GTEST_SKIP() << "the kernel is for Hopper";
  }

  std::vector<int> Integers(int64_t size) {
    std::uniform_int_distribution<int> draw(-kLargest, kLargest);
    std::vector<int> values(size);
    for (int& value : values) value = draw(random_);
    return values;
  }

  static std::vector<uint8_t> Encode(const std::vector<int>& values, const uint8_t* table) {
    std::vector<uint8_t> bytes;
    for (const int value : values) {
      bytes.push_back(static_cast<uint8_t>(table[std::abs(value)] | (value < 0 ? 0x80 : 0)));
    }
    return bytes;
  }

  // On the device, four bytes to an element.
  Tensor Upload(const std::vector<uint8_t>& bytes) {
    std::vector<double> words;
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const uint32_t word = bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 |
                            static_cast<uint32_t>(bytes[i + 3]) << 24;
      words.push_back(static_cast<int32_t>(word));
    }
    return Of(DType::kI32, {static_cast<int64_t>(words.size())}, words).cuda;
  }

  void Run(const Tensor& g, const Tensor& x_t, float alpha, const Tensor& dw, const Sizes& s,
           bool transposed) {
    const CudaQueue& queue = Cuda(cuda());
    cuda::Fp8GradGemm(reinterpret_cast<const uint8_t*>(g.data()),
                      reinterpret_cast<const uint8_t*>(x_t.data()), alpha, dw.f32(),
                      {s.rows, s.classes, s.dim, transposed}, queue.sm_count(), queue.stream());
    cuda().Synchronize();
  }

  std::mt19937 random_{1};
};

std::string Name(const Sizes& s, bool transposed) {
  return absl::StrCat(s.rows, " rows, ", s.classes, " x ", s.dim, transposed ? " transposed" : "");
}

TEST_F(Fp8GradGemmTest, TakesMultiplesOfSixteen) {
  for (const Sizes& s : kSizes) EXPECT_TRUE(cuda::Fp8GradGemmSupports({s.rows, s.classes, s.dim}));
  EXPECT_FALSE(cuda::Fp8GradGemmSupports({24, 16, 16}));
  EXPECT_FALSE(cuda::Fp8GradGemmSupports({16, 24, 16}));
  EXPECT_FALSE(cuda::Fp8GradGemmSupports({16, 16, 24}));
  EXPECT_FALSE(cuda::Fp8GradGemmSupports({0, 16, 16}));
}

TEST_F(Fp8GradGemmTest, AddsExactSums) {
  for (const Sizes& s : kSizes) {
    const std::vector<int> g = Integers(s.rows * s.classes), x_t = Integers(s.dim * s.rows);
    std::vector<int> sums(s.classes * s.dim);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t v = 0; v < s.classes; ++v) {
        const int left = g[r * s.classes + v];
        if (left == 0) continue;
        for (int64_t d = 0; d < s.dim; ++d) sums[v * s.dim + d] += left * x_t[d * s.rows + r];
      }
    }
    const Tensor g8 = Upload(Encode(g, kE5M2)), x8t = Upload(Encode(x_t, kE4M3));
    for (const bool transposed : {false, true}) {
      const auto at = [&](int64_t v, int64_t d) {
        return transposed ? d * s.classes + v : v * s.dim + d;
      };
      std::vector<double> before(s.classes * s.dim), expected(s.classes * s.dim);
      const std::vector<int> start = Integers(s.classes * s.dim);
      for (int64_t v = 0; v < s.classes; ++v) {
        for (int64_t d = 0; d < s.dim; ++d) {
          const int64_t i = at(v, d);
          before[i] = 5.0 * start[i];
          expected[i] = before[i] + 0.25 * sums[v * s.dim + d];
        }
      }
      const Twin dw = Of(DType::kF32, {s.classes * s.dim}, before);
      Run(g8, x8t, 0.25f, dw.cuda, s, transposed);
      const std::vector<double> got = OnHost(dw.cuda);
      int64_t bad = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] != expected[i] && bad++ < 4) {
          ADD_FAILURE() << Name(s, transposed) << " at " << i << ": " << got[i] << ", not "
                        << expected[i];
        }
      }
      EXPECT_EQ(bad, 0) << Name(s, transposed) << " of " << got.size();
    }
  }
}

// Sums of positive numbers, of which the tensor cores cut off what their accumulator does not hold,
// 2e-4 of a sum of 128 rows. As longer ones are made in f32, no more than that is lost of 16,384
// rows.
TEST_F(Fp8GradGemmTest, LongSumsKeepTheirDigits) {
  const Sizes s = {16384, 16, 16};
  std::vector<uint8_t> g(s.rows * s.classes), x_t(s.dim * s.rows);
  for (uint8_t& byte : g) byte = static_cast<uint8_t>(0x30 + random_() % 16);    // 1/8 to 1.75
  for (uint8_t& byte : x_t) byte = static_cast<uint8_t>(0x30 + random_() % 16);  // 1/2 to 1.875
  const auto e5m2 = [](uint8_t b) { return std::ldexp(1 + (b & 3) / 4.0, (b >> 2) - 15); };
  const auto e4m3 = [](uint8_t b) { return std::ldexp(1 + (b & 7) / 8.0, (b >> 3) - 7); };
  const Tensor dw = Zeros(DType::kF32, {s.classes, s.dim}).cuda;
  Run(Upload(g), Upload(x_t), 1.0f, dw, s, false);
  const std::vector<double> got = OnHost(dw);
  for (int64_t v = 0; v < s.classes; ++v) {
    for (int64_t d = 0; d < s.dim; ++d) {
      double sum = 0;
      for (int64_t r = 0; r < s.rows; ++r) {
        sum += e5m2(g[r * s.classes + v]) * e4m3(x_t[d * s.rows + r]);
      }
      EXPECT_NEAR(got[v * s.dim + d], sum, 4e-4 * sum) << v << ", " << d;
    }
  }
}

TEST_F(Fp8GradGemmTest, NanStaysInItsClass) {
  const Sizes s = {208, 400, 208};
  constexpr int64_t kBad = 277;
  std::vector<uint8_t> g = Encode(Integers(s.rows * s.classes), kE5M2);
  g[133 * s.classes + kBad] = kE5M2Nan;
  const Tensor g8 = Upload(g), x8t = Upload(Encode(Integers(s.dim * s.rows), kE4M3));
  for (const bool transposed : {false, true}) {
    const Tensor dw = Zeros(DType::kF32, {s.classes * s.dim}).cuda;
    Run(g8, x8t, 1.0f, dw, s, transposed);
    const std::vector<double> got = OnHost(dw);
    for (int64_t i = 0; i < s.classes * s.dim; ++i) {
      const int64_t v = transposed ? i % s.classes : i / s.dim;
      ASSERT_EQ(std::isnan(got[i]), v == kBad) << Name(s, transposed) << " at " << i;
    }
  }
}

TEST_F(Fp8GradGemmTest, TheSameBitsInEachRun) {
  const Sizes s = {4112, 1040, 768};
  std::vector<uint8_t> g(s.rows * s.classes), x_t(s.dim * s.rows);
  for (uint8_t& byte : g) byte = static_cast<uint8_t>(random_() % 0x78 | (random_() & 0x80));
  for (uint8_t& byte : x_t) byte = static_cast<uint8_t>(random_() % 0x78 | (random_() & 0x80));
  const Tensor g8 = Upload(g), x8t = Upload(x_t);
  const auto run = [&](bool transposed) {
    const Tensor dw = Zeros(DType::kF32, {s.classes * s.dim}).cuda;
    Run(g8, x8t, 1e-3f, dw, s, transposed);
    return Bytes(dw);
  };
  for (const bool transposed : {false, true}) {
    const std::vector<uint8_t> first = run(transposed);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(run(transposed) == first) << i;
  }
}

}  // namespace
}  // namespace kernels
