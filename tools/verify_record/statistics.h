// Student's t-tests, as records of the speedrun report them.
//
//   ABSL_ASSIGN_OR_RETURN(const Summary losses, Summarize({3.2804, 3.2754, 3.2753}));
//   const TTest test = OneSampleTTest(losses, 3.28);
//   if (test.p_less < 0.01) ...  // the mean loss is below 3.28
#ifndef TOOLS_VERIFY_RECORD_STATISTICS_H_
#define TOOLS_VERIFY_RECORD_STATISTICS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tools {

// All that a t-test needs of a sample. Published tables often have no more.
struct Summary {
  int64_t n = 0;
  double mean = 0;  // in the unit of the sample
  double sd = 0;    // of the sample: the sum of squares is divided by n - 1
};

// InvalidArgument for fewer than two values, which have no standard deviation, and for a value
// that is not finite. Equal values have an sd of exactly 0 and their own value as mean.
absl::StatusOr<Summary> Summarize(absl::Span<const double> sample);

// P(T <= t) of Student's t distribution with `dof` > 0 degrees of freedom, not necessarily whole;
// `t` may be infinite. The relative error, far into the lower tail too, is below 1e-12 up to a
// hundred degrees of freedom and below 1e-11 up to a thousand: it grows with the logarithm of the
// gamma function of dof / 2, which is about 2600 at a thousand. Below 1e-300 digits are lost, and
// what is too small for a double is 0.
double StudentTCdf(double t, double dof);

struct TTest {
  double difference = 0;  // of the means, or of the mean and the target
  double t = 0;           // infinite, or NaN for a difference of 0, if there is no variance
  double dof = 0;         // NaN if there is no variance
  double p_less = 1;      // one-sided: of a t as low as this if the difference were 0
  double p_two_sided = 1;
  // All values of the sample (of each of the two) are equal, so t does not exist. p_less is then 0
  // if the difference is negative, else 1; p_two_sided is 1 if the difference is 0, else 0.
  bool no_variance = false;
};

// Is the mean of the sample's distribution below `target`?
// t = (mean - target) / (sd / sqrt(n)), n - 1 degrees of freedom. CHECKs n >= 2.
TTest OneSampleTTest(const Summary& sample, double target);

// Is the mean of the sample's distribution below the mean of the baseline's? The variances may
// differ. B. L. Welch, "The generalization of 'Student's' problem when several different
// population variances are involved", 1947. CHECKs that each has n >= 2.
TTest WelchTTest(const Summary& sample, const Summary& baseline);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_STATISTICS_H_
