#include "tools/verify_record/statistics.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The closed forms for 1, 2 and 4 degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double ClosedForm(double t, int dof) {
  if (dof == 1) return 0.5 + std::atan(t) / std::numbers::pi;
  const double sine = t / std::sqrt(dof + t * t);
  if (dof == 2) return 0.5 + sine / 2;
  return 0.5 + sine / 2 * (1 + (1 - sine * sine) / 2);
}

TEST(StudentTCdf, ClosedForms) {
  for (const int dof : {1, 2, 4}) {
    for (double t = -30; t <= 30; t += 0.37) {
      // The closed forms cancel in the lower tail: an absolute error of some roundings of 1.
      EXPECT_NEAR(StudentTCdf(t, dof), ClosedForm(t, dof), 1e-14) << t << ", " << dof;
    }
  }
}

// Percentage points as the usual tables have them (2.262, 1.833, ...), to all digits.
TEST(StudentTCdf, PublishedPercentagePoints) {
  const struct {
    double p, dof, t;
  } rows[] = {
      {0.975, 1, 12.7062047361746988}, {0.99, 3, 4.54070285856813356},
      {0.975, 4, 2.77644510519779436}, {0.99, 7, 2.99795156686852843},
      {0.95, 9, 1.83311293265623717},  {0.975, 9, 2.26215716279820554},
      {0.99, 9, 2.82143792502580876},  {0.995, 20, 2.84533970978610847},
      {0.9, 30, 1.31041502539139558},
  };
  for (const auto& row : rows) {
    EXPECT_NEAR(StudentTCdf(row.t, row.dof), row.p, 1e-12) << row.t << ", " << row.dof;
    EXPECT_NEAR(StudentTCdf(-row.t, row.dof), 1 - row.p, 1e-12) << row.t << ", " << row.dof;
  }
}

// Against 40-digit arithmetic: the far tail, the middle, many degrees of freedom and broken ones.
TEST(StudentTCdf, RelativeErrorIsSmall) {
  const struct {
    double t, dof, want;
  } rows[] = {
      {-2.9345, 9, 0.0083174138966160545566}, {-5, 17.5, 0.000050361268095336939722},
      {-37, 3, 0.000021711744062489562766},   {0.001, 9, 0.50038803483701336655},
      {-12, 40, 3.9120856521279863115e-15},
  };
  for (const auto& row : rows) {
    EXPECT_NEAR(StudentTCdf(row.t, row.dof) / row.want, 1, 1e-12) << row.t << ", " << row.dof;
  }
  // The logarithms of the gamma function, thousands and millions here, leave fewer digits.
  EXPECT_NEAR(StudentTCdf(-1.5, 998) / 0.066965335616700863507, 1, 1e-11);
  EXPECT_NEAR(StudentTCdf(1.959963984540054, 1e6), 0.97499986135238916998, 1e-10);
}

TEST(StudentTCdf, MiddleAndEnds) {
  for (const double dof : {0.5, 1.0, 9.0, 6.46, 1000.0}) {
    EXPECT_EQ(StudentTCdf(0, dof), 0.5);
    EXPECT_EQ(StudentTCdf(-kInfinity, dof), 0);
    EXPECT_EQ(StudentTCdf(kInfinity, dof), 1);
    EXPECT_EQ(StudentTCdf(1e300, dof), 1);
    EXPECT_GE(StudentTCdf(-1e300, dof), 0);
  }
}

TEST(Summarize, MeanAndSampleDeviation) {
  const absl::StatusOr<Summary> summary = Summarize({2, 4, 4, 4, 5, 5, 7, 9});
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->n, 8);
  EXPECT_DOUBLE_EQ(summary->mean, 5);
  EXPECT_DOUBLE_EQ(summary->sd, std::sqrt(32.0 / 7));
}

TEST(Summarize, EqualValuesHaveNoVariance) {
  const absl::StatusOr<Summary> summary = Summarize({3.2754, 3.2754, 3.2754});
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->mean, 3.2754);
  EXPECT_EQ(summary->sd, 0);
}

TEST(Summarize, Refusals) {
  const auto message = [](const std::vector<double>& sample) {
    return std::string(Summarize(sample).status().message());
  };
  EXPECT_EQ(message({}), "0 values: a standard deviation needs two at least; give more runs");
  EXPECT_EQ(message({3.28}), "1 value: a standard deviation needs two at least; give more runs");
  EXPECT_EQ(message({3.28, std::nan("")}), "value 2 is nan; leave that run out, and say so");
  EXPECT_EQ(message({kInfinity, 3.28}), "value 1 is inf; leave that run out, and say so");
  EXPECT_EQ(message({1, 1e300}), "the values lie too far apart for a standard deviation");
}

TEST(OneSampleTTest, WithoutVariance) {
  const TTest below = OneSampleTTest({3, 3.27, 0}, 3.28);
  EXPECT_TRUE(below.no_variance);
  EXPECT_EQ(below.t, -kInfinity);
  EXPECT_EQ(below.p_less, 0);
  EXPECT_EQ(below.p_two_sided, 0);
  const TTest at = OneSampleTTest({3, 3.28, 0}, 3.28);
  EXPECT_TRUE(std::isnan(at.t));
  EXPECT_EQ(at.p_less, 1);
  EXPECT_EQ(at.p_two_sided, 1);
  const TTest above = OneSampleTTest({3, 3.29, 0}, 3.28);
  EXPECT_EQ(above.p_less, 1);
  EXPECT_EQ(above.p_two_sided, 0);
}

TEST(OneSampleTTest, AboveTheTargetIsNoEvidence) {
  const TTest test = OneSampleTTest({10, 3.281, 0.001}, 3.28);
  EXPECT_NEAR(test.t, std::sqrt(10.0), 1e-9);
  EXPECT_GT(test.p_less, 0.99);
  EXPECT_NEAR(test.p_two_sided, 2 * (1 - test.p_less), 1e-12);
}

TEST(WelchTTest, EqualSizesAndVariancesGiveThePooledDegreesOfFreedom) {
  const TTest test = WelchTTest({5, 1.0, 0.3}, {5, 1.2, 0.3});
  EXPECT_NEAR(test.dof, 8, 1e-12);
  EXPECT_NEAR(test.t, -0.2 / (0.3 * std::sqrt(2.0 / 5)), 1e-12);
  EXPECT_NEAR(WelchTTest({5, 1.2, 0.3}, {5, 1.0, 0.3}).p_less, 1 - test.p_less, 1e-12);
}

TEST(WelchTTest, OneSetWithoutVarianceIsAOneSampleTest) {
  const TTest test = WelchTTest({10, 3.27816, 0.00198}, {4, 3.28, 0});
  const TTest want = OneSampleTTest({10, 3.27816, 0.00198}, 3.28);
  EXPECT_FALSE(test.no_variance);
  EXPECT_NEAR(test.t, want.t, 1e-12);
  EXPECT_NEAR(test.dof, 9, 1e-12);
  EXPECT_NEAR(test.p_less, want.p_less, 1e-12);
}

TEST(WelchTTest, NeitherSetVaries) {
  const TTest test = WelchTTest({2, 1, 0}, {2, 2, 0});
  EXPECT_TRUE(test.no_variance);
  EXPECT_EQ(test.p_less, 0);
  EXPECT_EQ(test.p_two_sided, 0);
  EXPECT_EQ(WelchTTest({2, 2, 0}, {2, 2, 0}).p_less, 1);
}

}  // namespace
}  // namespace tools
