#include "tools/verify_record/statistics.h"

#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

// The m-th partial numerator, m >= 1, of the continued fraction of the incomplete beta function:
// NIST Digital Library of Mathematical Functions, 8.17.23.
double PartialNumerator(int m, double a, double b, double x) {
  const double k = m / 2;  // rounded down
  if (m % 2 == 0) return k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k));
  return -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
}

// 1 / (1 + d1 / (1 + d2 / (1 + ...))), DLMF 8.17.22, by Lentz's method: each step multiplies the
// value by the ratio of two neighbouring convergents.
double BetaFraction(double a, double b, double x) {
  constexpr int kMostTerms = 100000;  // about sqrt(max(a, b)) are needed
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  double denominators = std::numeric_limits<double>::infinity();  // B_m / B_(m-1), and B_-1 is 0
  double numerators = 1;                                          // A_m / A_(m-1)
  double value = 1;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double d = PartialNumerator(m, a, b, x);
    denominators = 1 + d / denominators;
    numerators = 1 + d / numerators;
    const double ratio = numerators / denominators;
    value *= ratio;
    if (std::abs(ratio - 1) <= kEpsilon) return 1 / value;
  }
  CHECK(false) << "no convergence: a " << a << ", b " << b << ", x " << x;
  return value;
}

// The regularised incomplete beta function I_x(a, b). `y` is 1 - x, which the caller knows without
// cancellation.
double IncompleteBeta(double a, double b, double x, double y) {
  if (x == 0) return 0;
  if (y == 0) return 1;
  // The fraction converges fast below about the mean of the distribution; above, I_x(a, b) is
  // 1 - I_y(b, a).
  if (x > (a + 1) / (a + b + 2)) return 1 - IncompleteBeta(b, a, y, x);
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  return std::exp(a * std::log(x) + b * std::log(y) - log_beta) / a * BetaFraction(a, b, x);
}

TTest WithoutVariance(double difference) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TTest test;
  test.difference = difference;
  test.t = difference == 0 ? kNan : std::copysign(kInfinity, difference);
  test.dof = kNan;
  test.p_less = difference < 0 ? 0 : 1;
  test.p_two_sided = difference == 0 ? 1 : 0;
  test.no_variance = true;
  return test;
}

TTest WithVariance(double difference, double standard_error, double dof) {
  TTest test;
  test.difference = difference;
  test.t = difference / standard_error;
  test.dof = dof;
  test.p_less = StudentTCdf(test.t, dof);
  test.p_two_sided = 2 * StudentTCdf(-std::abs(test.t), dof);
  return test;
}

}  // namespace

absl::StatusOr<Summary> Summarize(absl::Span<const double> sample) {
  if (sample.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(sample.size(), sample.size() == 1 ? " value" : " values",
                     ": a standard deviation needs two at least; give more runs"));
  }
  for (size_t i = 0; i < sample.size(); ++i) {
    if (!std::isfinite(sample[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", i + 1, " is ", sample[i], "; leave that run out, and say so"));
    }
  }
  // Relative to the first value, sums lose no digits to what the values have in common, and
  // equal values have deviations of exactly 0.
  const double n = static_cast<double>(sample.size());
  double sum = 0;
  for (const double value : sample) sum += value - sample[0];
  const double shift = sum / n;
  double squares = 0;
  for (const double value : sample) {
    const double deviation = (value - sample[0]) - shift;
    squares += deviation * deviation;
  }
  const double sd = std::sqrt(squares / (n - 1));
  if (!std::isfinite(sd)) {
    return absl::InvalidArgumentError("the values lie too far apart for a standard deviation");
  }
  return Summary{static_cast<int64_t>(sample.size()), sample[0] + shift, sd};
}

double StudentTCdf(double t, double dof) {
  CHECK(dof > 0) << "degrees of freedom " << dof;
  CHECK(!std::isnan(t));
  // P(T <= -|t|) = I_x(dof / 2, 1 / 2) / 2 with x = dof / (dof + t^2) (Abramowitz and Stegun,
  // 26.7.1 and 26.5.27). t^2 / dof or its inverse, whichever is below 1, cannot overflow.
  const double ratio = std::abs(t) / std::sqrt(dof);
  const double small = ratio > 1 ? 1 / (ratio * ratio) : ratio * ratio;
  const double less = small / (1 + small);
  const double more = 1 / (1 + small);
  const double x = ratio > 1 ? less : more;
  const double y = ratio > 1 ? more : less;
  const double tail = IncompleteBeta(dof / 2, 0.5, x, y) / 2;
  return t < 0 ? tail : 1 - tail;
}

TTest OneSampleTTest(const Summary& sample, double target) {
  CHECK(sample.n >= 2) << "n " << sample.n;
  const double difference = sample.mean - target;
  if (sample.sd == 0) return WithoutVariance(difference);
  const double n = static_cast<double>(sample.n);
  return WithVariance(difference, sample.sd / std::sqrt(n), n - 1);
}

TTest WelchTTest(const Summary& sample, const Summary& baseline) {
  CHECK(sample.n >= 2 && baseline.n >= 2) << "n " << sample.n << " and " << baseline.n;
  const double difference = sample.mean - baseline.mean;
  if (sample.sd == 0 && baseline.sd == 0) return WithoutVariance(difference);
  const double a = sample.sd / std::sqrt(static_cast<double>(sample.n));
  const double b = baseline.sd / std::sqrt(static_cast<double>(baseline.n));
  const double standard_error = std::hypot(a, b);
  // Welch-Satterthwaite, in the two shares of the variance of the difference.
  const double share_a = (a / standard_error) * (a / standard_error);
  const double share_b = (b / standard_error) * (b / standard_error);
  const double dof = 1 / (share_a * share_a / static_cast<double>(sample.n - 1) +
                          share_b * share_b / static_cast<double>(baseline.n - 1));
  return WithVariance(difference, standard_error, dof);
}

}  // namespace tools
