// Bounds of results in bf16.
//
// A bf16 step is the distance between neighbours: 2^(e - 7) for values in [2^e, 2^(e + 1)), which
// is 1/128 of the least value there and 1/256 of the largest. A bound says how many steps of the
// value's own binade the arithmetic may cost, and how large the error before the rounding may be:
//
//   EXPECT_TRUE(WithinBf16Steps(got, want, 0.5, 1e-6));  // want is exact; got was rounded once
//   EXPECT_TRUE(WithinBf16Steps(got, want, 1, 1e-6));    // both were rounded: perhaps neighbours
#ifndef KERNELS_TESTING_BF16_H_
#define KERNELS_TESTING_BF16_H_

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kernels::testing {

// The unit roundoff: the largest relative error of one rounding to bf16, half a step of the least
// value of a binade. For bounds that are relative because several roundings meet.
inline constexpr double kBf16Roundoff = 1.0 / 256;

// Steps that one rounding costs where f32 arithmetic came before it: half a step, and an error of
// the f32 value of at most 2^-18 of it. Where terms cancel, the absolute part of a bound is for
// them.
inline constexpr double kOneRounding = 0.5 + 1.0 / 1024;

// The step of the binade that holds `value`; below 2^-126 that of the subnormals, 2^-133. NaN for
// an infinity or a NaN.
double Bf16Step(double value);

// Whether |got - want| <= steps * Bf16Step(the larger of both) + absolute. Infinities equal
// themselves, and NaN is within nothing. The message has both values and the distance in steps.
::testing::AssertionResult WithinBf16Steps(double got, double want, double steps,
                                           double absolute = 0);

// The same for each element; fails once, at the first that is off, with `what` and its index.
void ExpectWithinBf16Steps(const std::vector<double>& got, const std::vector<double>& want,
                           double steps, double absolute, const std::string& what);

}  // namespace kernels::testing

#endif  // KERNELS_TESTING_BF16_H_
