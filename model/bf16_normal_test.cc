#include "model/bf16_normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "kernels/dtype.h"

namespace model {
namespace {

constexpr float kDeviation = 0.005f;

// How many of the 2^17 outcomes have each value; zeros of either sign are one.
std::map<float, int64_t> Outcomes() {
  const BF16Normal normal(kDeviation);
  std::map<float, int64_t> counts;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      ++counts[kernels::ToFloat(normal.Cosine(a, b))];
      ++counts[kernels::ToFloat(normal.Sine(a, b))];
    }
  }
  return counts;
}

// torch's draws by value; see testdata/make_bf16_normal.py.
std::map<float, int64_t> Drawn() {
  std::ifstream file("model/testdata/bf16_normal.tsv");
  std::map<float, int64_t> counts;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    char* end = nullptr;
    const uint64_t bits = std::strtoul(line.c_str(), &end, 16);
    const kernels::BF16 value = {static_cast<uint16_t>(bits)};
    counts[kernels::ToFloat(value)] = std::strtol(end, nullptr, 10);
  }
  return counts;
}

TEST(BF16Normal, HasTheValuesThatTorchDraws) {
  const std::map<float, int64_t> ours = Outcomes(), torch = Drawn();
  ASSERT_EQ(torch.size(), 2379u);
  ASSERT_EQ(ours.size(), torch.size());
  for (auto a = ours.begin(), b = torch.begin(); a != ours.end(); ++a, ++b) {
    EXPECT_EQ(a->first, b->first);
  }
}

// Pearson's sum over n values has the mean n - 1 and the standard deviation sqrt(2 n), were each
// draw independent. A pair's radius is the same, which scatters it a little more.
TEST(BF16Normal, DrawsThemAsOftenAsTorch) {
  const std::map<float, int64_t> ours = Outcomes(), torch = Drawn();
  double draws = 0, chi_square = 0;
  for (const auto& [value, count] : torch) draws += static_cast<double>(count);
  ASSERT_EQ(draws, 0x1p25);
  for (const auto& [value, count] : ours) {
    const double want = static_cast<double>(count) * draws / 0x1p17;
    const auto got = torch.find(value);
    const double seen = got == torch.end() ? 0 : static_cast<double>(got->second);
    chi_square += (seen - want) * (seen - want) / want;
  }
  const auto n = static_cast<double>(ours.size());
  EXPECT_NEAR(chi_square, n - 1, 6 * std::sqrt(2 * n));
}

TEST(BF16Normal, Moments) {
  double square = 0, fourth = 0, largest = 0;
  for (const auto& [value, count] : Outcomes()) {
    const double v = value, share = static_cast<double>(count) / 0x1p17;
    square += share * v * v;
    fourth += share * v * v * v * v;
    largest = std::fmax(largest, v);
  }
  EXPECT_NEAR(std::sqrt(square), 0.00496813, 1e-8);
  EXPECT_NEAR(fourth / (square * square), 2.92231, 1e-5);
  EXPECT_EQ(largest, 0.0166015625);
}

}  // namespace
}  // namespace model
