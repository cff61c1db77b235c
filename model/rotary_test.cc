#include "model/rotary.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtype.h"

namespace model {
namespace {

// The track-2 record of 2025-04-16: (1/1024)^(p/31), with the exponents of a f32 grid whose halves
// count from their own ends, then as many zeros.
std::vector<float> Frequencies() {
  std::vector<float> frequencies(64, 0.0f);
  const float step = 1.0f / 31;
  for (int p = 0; p < 32; ++p) {
    const float exponent = p < 16 ? step * p : 1.0f - step * (31 - p);
    frequencies[p] = static_cast<float>(std::pow(1.0 / 1024, static_cast<double>(exponent)));
  }
  return frequencies;
}

struct Tables {
  explicit Tables(const std::vector<float>& frequencies, int64_t positions)
      : cos(positions * frequencies.size()), sin(cos.size()) {
    FillRotary(frequencies, std::span<float>(cos), std::span<float>(sin));
  }
  std::vector<float> cos, sin;
};

// Half a unit of the seventh digit, and f32's rounding.
constexpr double kDigits = 1.2e-7;

TEST(Rotary, T2_10_Table) {
  const std::vector<float> frequencies = Frequencies();
  // To an ulp: the last digit is that of the correctly rounded power.
  EXPECT_FLOAT_EQ(frequencies[1], 0.799638212f);
  EXPECT_FLOAT_EQ(frequencies[8], 0.167166188f);
  EXPECT_FLOAT_EQ(frequencies[17], 0.0223455112f);
  EXPECT_EQ(frequencies[31], 1.0f / 1024);
  const Tables tables(frequencies, 128);
  const auto at = [&](int p) {
    return std::pair<double, double>(tables.cos[127 * 64 + p], tables.sin[127 * 64 + p]);
  };
  EXPECT_NEAR(at(0).first, 0.2323591, kDigits);
  EXPECT_NEAR(at(0).second, 0.9726301, kDigits);
  // An ulp of the angle, 21.23, is 2^-19.
  EXPECT_NEAR(at(8).first, -0.7241176, std::ldexp(1.0, -19));
  EXPECT_NEAR(at(8).second, 0.6896765, std::ldexp(1.0, -19));
  EXPECT_NEAR(at(31).first, 0.9923189, kDigits);
  EXPECT_NEAR(at(31).second, 0.1237057, kDigits);
  for (int p = 32; p < 64; ++p) EXPECT_EQ(at(p), std::pair(1.0, 0.0)) << p;
}

TEST(Rotary, T2_11_LongPositions) {
  const Tables tables({1.0f}, 262144);
  EXPECT_NEAR(tables.cos[65535], 0.1923440, kDigits);
  EXPECT_NEAR(tables.sin[65535], 0.9813276, kDigits);
  EXPECT_NEAR(tables.cos[262143], -0.6091615, kDigits);
  EXPECT_NEAR(tables.sin[262143], 0.7930462, kDigits);
}

// The angle is the f32 product, and of that number cosine and sine are exact to an ulp.
TEST(Rotary, AngleIsRoundedOnce) {
  const std::vector<float> frequencies = Frequencies();
  const Tables tables(frequencies, 300);
  for (int64_t t = 0; t < 300; ++t) {
    for (int p = 0; p < 64; ++p) {
      const double theta = static_cast<float>(t) * frequencies[p];
      ASSERT_NEAR(tables.cos[t * 64 + p], std::cos(theta), 1.2e-7) << t << " " << p;
      ASSERT_NEAR(tables.sin[t * 64 + p], std::sin(theta), 1.2e-7) << t << " " << p;
    }
  }
}

TEST(Rotary, BF16TablesAreTheF32OnesRounded) {
  const std::vector<float> frequencies = Frequencies();
  const Tables wide(frequencies, 200);
  std::vector<kernels::BF16> cos(wide.cos.size()), sin(wide.sin.size());
  FillRotary(frequencies, std::span(cos), std::span(sin));
  for (size_t i = 0; i < cos.size(); ++i) {
    ASSERT_EQ(cos[i].bits, kernels::ToBF16(wide.cos[i]).bits) << i;
    ASSERT_EQ(sin[i].bits, kernels::ToBF16(wide.sin[i]).bits) << i;
  }
}

}  // namespace
}  // namespace model
