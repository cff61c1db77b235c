#include "kernels/testing/bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kernels::testing {

double Bf16Step(double value) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  constexpr int kLeastExponent = -126, kFractionBits = 7;
  if (value == 0) return std::ldexp(1.0, kLeastExponent - kFractionBits);
  return std::ldexp(1.0, std::max(std::ilogb(value), kLeastExponent) - kFractionBits);
}

::testing::AssertionResult WithinBf16Steps(double got, double want, double steps, double absolute) {
  if (got == want) return ::testing::AssertionSuccess();  // infinities, too
  const double step = Bf16Step(std::max(std::fabs(got), std::fabs(want)));
  const double distance = std::fabs(got - want);
  if (distance <= steps * step + absolute) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << got << " and " << want << " are " << distance << " apart, " << distance / step
         << " bf16 steps; allowed are " << steps << " steps of " << step << " and " << absolute;
}

void ExpectWithinBf16Steps(const std::vector<double>& got, const std::vector<double>& want,
                           double steps, double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(WithinBf16Steps(got[i], want[i], steps, absolute)) << what << " " << i;
  }
}

}  // namespace kernels::testing
