#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace kernels {
namespace {

struct Shape {
  int64_t m, n, k;
};

std::vector<float> RandomFloats(int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

// Padded leading dims, so that a mix-up of dims and strides shows.
constexpr int64_t kPad = 3;

struct Problem {
  Problem(Shape s, bool ta, bool tb)
      : shape(s),
        trans_a(ta),
        trans_b(tb),
        lda((ta ? s.m : s.k) + kPad),
        ldb((tb ? s.k : s.n) + kPad),
        ldc(s.n + kPad),
        a(RandomFloats((ta ? s.k : s.m) * lda, 1)),
        b(RandomFloats((tb ? s.n : s.k) * ldb, 2)),
        before(RandomFloats(s.m * ldc, 3)) {}

  std::vector<float> Run(float alpha, float beta) const {
    std::vector<float> c = before;
    Sgemm(trans_a, trans_b, shape.m, shape.n, shape.k, alpha, a.data(), lda, b.data(), ldb, beta,
          c.data(), ldc);
    return c;
  }

  Shape shape;
  bool trans_a, trans_b;
  int64_t lda, ldb, ldc;
  std::vector<float> a, b, before;
};

// An f32 sum of k products is off by at most about k * 2^-24 of the sum of magnitudes.
void CheckAgainstFloat64(const Problem& problem, float alpha, float beta) {
  const auto [m, n, k] = problem.shape;
  const std::vector<float> got = problem.Run(alpha, beta);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < problem.ldc; ++j) {
      const int64_t at = i * problem.ldc + j;
      if (j >= n) {
        ASSERT_EQ(got[at], problem.before[at]) << "padding at " << i << ", " << j;
        continue;
      }
      double want = beta * static_cast<double>(problem.before[at]), size = std::fabs(want);
      for (int64_t l = 0; l < k; ++l) {
        const double x = problem.a[problem.trans_a ? l * problem.lda + i : i * problem.lda + l];
        const double y = problem.b[problem.trans_b ? j * problem.ldb + l : l * problem.ldb + j];
        want += alpha * x * y;
        size += std::fabs(alpha * x * y);
      }
      ASSERT_NEAR(got[at], want, size * (k + 2) * std::ldexp(1.0, -24)) << i << ", " << j;
    }
  }
}

TEST(Sgemm, MatchesFloat64) {
  for (const Shape& shape : std::vector<Shape>{
           {1, 1, 1}, {1, 24, 96}, {16, 1, 8}, {48, 96, 24}, {7, 13, 1}, {130, 67, 129}}) {
    for (bool trans_a : {false, true}) {
      for (bool trans_b : {false, true}) {
        const Problem problem(shape, trans_a, trans_b);
        CheckAgainstFloat64(problem, 1.0f, 0.0f);
        CheckAgainstFloat64(problem, -0.5f, 1.0f);
      }
    }
  }
}

// beta = 0 does not read c.
TEST(Sgemm, OverwritesNaN) {
  Problem problem({5, 6, 7}, false, true);
  problem.before.assign(problem.before.size(), NAN);
  const std::vector<float> c = problem.Run(1.0f, 0.0f);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 6; ++j) EXPECT_TRUE(std::isfinite(c[i * problem.ldc + j]));
  }
}

TEST(Sgemm, SameBitsOnEveryThread) {
  const Problem problem({100, 90, 300}, false, true);
  const std::vector<float> want = problem.Run(1.0f, 0.0f);
  std::vector<std::vector<float>> got(3);
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&problem, &mine] { mine = problem.Run(1.0f, 0.0f); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : got) EXPECT_EQ(mine, want);
}

TEST(ThreadScratch, IsAlignedKeptAndApart) {
  float* first = ThreadScratch(0, 100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(ThreadScratch(0, 50), first);
  EXPECT_EQ(ThreadScratch(0, 100), first);
  EXPECT_NE(ThreadScratch(1, 100), first);
  float* larger = ThreadScratch(0, 100000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(larger) % 64, 0u);
  larger[99999] = 1.0f;
  float* other = nullptr;
  std::thread([&] { other = ThreadScratch(0, 100000); }).join();
  EXPECT_NE(other, larger);
}

TEST(ThreadScratchDeathTest, RejectsUnknownBuffers) { EXPECT_DEATH(ThreadScratch(8, 1), "which"); }

}  // namespace
}  // namespace kernels
