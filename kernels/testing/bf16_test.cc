#include "kernels/testing/bf16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/dtype.h"

namespace kernels::testing {
namespace {

double Value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

TEST(Bf16Step, IsTheDistanceToTheNextLargerValue) {
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {  // up to the largest finite one
    ASSERT_EQ(Bf16Step(Value(bits)), Value(bits + 1) - Value(bits)) << bits;
    ASSERT_EQ(Bf16Step(-Value(bits)), Value(bits + 1) - Value(bits)) << bits;
  }
  EXPECT_TRUE(std::isnan(Bf16Step(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isnan(Bf16Step(std::nan(""))));
}

// Case G1: neighbours, 1/174 of their value apart.
TEST(WithinBf16Steps, G1_NeighboursAreOneStepApart) {
  EXPECT_TRUE(WithinBf16Steps(-0.1708984375, -0.169921875, 1));
  EXPECT_FALSE(WithinBf16Steps(-0.1708984375, -0.169921875, 0.99));
  for (const uint32_t first : {0x0080, 0x3F00, 0x7E00}) {  // near 2^-126, 1/2 and 2^125
    for (uint32_t bits = first; bits < first + 380; ++bits) {
      ASSERT_TRUE(WithinBf16Steps(Value(bits), Value(bits + 1), 1)) << bits;
      ASSERT_TRUE(WithinBf16Steps(Value(bits + 1), Value(bits), 1)) << bits;
      // A step below a power of two is half of the step above it, which is what counts there.
      const double less = bits % 128 == 127 ? 0.49 : 0.99;
      ASSERT_FALSE(WithinBf16Steps(Value(bits), Value(bits + 1), less)) << bits;
      ASSERT_FALSE(WithinBf16Steps(Value(bits), Value(bits + 2), 0.99)) << bits;
    }
  }
}

TEST(WithinBf16Steps, OneRoundingIsHalfAStep) {
  uint32_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525 + 1013904223;
    const float exact = std::ldexp(1 + state * 0x1p-32f, static_cast<int>(state % 200) - 100);
    const double rounded = RoundToBF16(exact);
    ASSERT_TRUE(WithinBf16Steps(rounded, exact, 0.5)) << exact;
    ASSERT_LE(std::fabs(rounded - exact), kBf16Roundoff * exact) << exact;
  }
  EXPECT_TRUE(WithinBf16Steps(1, 1 + 0x1p-8, 0.5));  // a tie
  EXPECT_FALSE(WithinBf16Steps(1, 1 + 0x1.1p-8, 0.5));
  EXPECT_TRUE(WithinBf16Steps(1, 1 + 0x1.1p-8, 0.5, 0x1p-12));
}

TEST(WithinBf16Steps, NotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_TRUE(WithinBf16Steps(inf, inf, 0));
  EXPECT_FALSE(WithinBf16Steps(inf, -inf, 1e9, 1e300));
  EXPECT_FALSE(WithinBf16Steps(inf, 1, 1e9, 1e300));
  EXPECT_FALSE(WithinBf16Steps(1, inf, 1e9, 1e300));
  EXPECT_FALSE(WithinBf16Steps(nan, nan, 1e9, 1e300));
  EXPECT_FALSE(WithinBf16Steps(nan, 1, 1e9, 1e300));
  EXPECT_FALSE(WithinBf16Steps(1, nan, 1e9, 1e300));
}

TEST(WithinBf16Steps, SaysHowFar) {
  EXPECT_STREQ(WithinBf16Steps(1.015625, 1, 1).message(),
               "1.015625 and 1 are 0.015625 apart, 2 bf16 steps; allowed are 1 steps of 0.0078125 "
               "and 0");
}

}  // namespace
}  // namespace kernels::testing
