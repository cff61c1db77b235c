// The statistics that the records publish, computed again from their losses and times.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/verify_record/record_report.h"
#include "tools/verify_record/run_set.h"
#include "tools/verify_record/statistics.h"

namespace tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kTarget = 3.28;

// Record 2025-10-27 (FixMuonLR), track 1 B, and its predecessor on the same machine.
const std::vector<double> kLossesB = {3.2804, 3.2754, 3.2753, 3.2800, 3.2780,
                                      3.2813, 3.2778, 3.2771, 3.2780, 3.2783};
const std::vector<double> kTimesB = {139.804, 139.441, 139.780, 139.889, 139.464,
                                     139.761, 139.411, 139.847, 139.555, 139.570};
const std::vector<double> kTimesBeforeB = {143.018, 142.641, 142.789, 143.072, 143.241};
// Record 2025-09-23 (Muon Custom Sizing), track 1 A, and its predecessor.
const std::vector<double> kLossesA = {3.2792, 3.2792, 3.2801, 3.2799};
const std::vector<double> kTimesA = {149.775, 149.678, 149.686, 149.623};
const std::vector<double> kTimesBeforeA = {150.393, 150.347, 150.413};
// Record 61 of the unified optimizer.
const std::vector<double> kLosses61 = {3.2794, 3.2799, 3.2767, 3.2781,
                                       3.2803, 3.2780, 3.2767, 3.2767};

Summary Of(const std::vector<double>& sample) { return Summarize(sample).value(); }

// Tolerances are half a unit of the last printed digit unless a comment says otherwise.

TEST(PublishedTables, T1_56_RecordB) {
  const Summary losses = Of(kLossesB);
  EXPECT_NEAR(losses.mean, 3.27816, 1e-12);
  EXPECT_NEAR(losses.sd, 0.00198, 0.5e-5);
  EXPECT_NEAR(losses.sd, 0.001982815058, 1e-12);
  const TTest test = OneSampleTTest(losses, kTarget);
  EXPECT_EQ(test.dof, 9);
  EXPECT_NEAR(test.t, -2.9345, 0.5e-4);
  EXPECT_NEAR(test.p_less, 0.00832, 0.5e-5);
  EXPECT_NEAR(test.p_less, 0.00831727675543, 1e-12);
  const Summary times = Of(kTimesB);
  EXPECT_NEAR(times.mean, 139.6522, 1e-9);
  EXPECT_NEAR(times.sd, 0.1825, 0.5e-4);
  const Summary before = Of(kTimesBeforeB);
  EXPECT_NEAR(before.mean, 142.9522, 1e-9);
  EXPECT_NEAR(before.sd, 0.2375, 0.5e-4);
}

TEST(PublishedTables, T1_56_RecordBReport) {
  const RunSet runs = {.losses = kLossesB, .times_s = kTimesB, .steps = 2285};
  const RunSet before = {.times_s = kTimesBeforeB, .steps = 2315};
  EXPECT_EQ(RecordReport(runs, before, kTarget).value(),
            "losses of 10 runs: 3.2782 +- 0.0020 (mean 3.278160, sd 0.001983)\n"
            "  one-sided t-test against 3.28: t -2.9345, 9 degrees of freedom, p 0.0083\n"
            "The rule for records, mean loss below 3.28 with p < 0.01, is met.\n"
            "times of 10 runs: 139.6522 +- 0.1825 s (mean 139.652200, sd 0.182465)\n"
            "  2285 steps of 61.117 ms\n"
            "baseline's times of 5 runs: 142.9522 +- 0.2375 s (mean 142.952200, sd 0.237469)\n"
            "  2315 steps of 61.750 ms\n"
            "  difference of times: -3.3000 s (-2.31 %)\n"
            "  Welch's t-test: t -27.3038, 6.46 degrees of freedom, p 3.2e-08 (lower), 6.4e-08 "
            "(two-sided)\n");
}

TEST(PublishedTables, RecordBWelchAgainstItsPredecessor) {
  const TTest test = WelchTTest(Of(kTimesB), Of(kTimesBeforeB));  // want: 40-digit arithmetic
  EXPECT_NEAR(test.difference, -3.3, 1e-9);
  EXPECT_NEAR(test.t, -27.3038036068, 1e-8);
  EXPECT_NEAR(test.dof, 6.45996475819, 1e-9);
  EXPECT_NEAR(test.p_less / 3.21705056201e-8, 1, 1e-9);
}

// The rows of the table of ten logs at steps 250 and 500.
TEST(PublishedTables, RecordBValidationsOnTheWay) {
  const Summary at_250 =
      Of({4.0897, 4.1789, 4.0691, 4.0801, 4.0818, 4.0770, 4.0756, 4.0743, 4.0675, 4.0703});
  EXPECT_NEAR(at_250.mean, 4.0864, 0.5e-4);
  EXPECT_NEAR(at_250.sd, 0.0332, 0.5e-4);
  const Summary at_500 =
      Of({3.8175, 3.8117, 3.8107, 3.8035, 3.8093, 3.8092, 3.8114, 3.8103, 3.8068, 3.8093});
  EXPECT_NEAR(at_500.mean, 3.8100, 0.5e-4);
  EXPECT_NEAR(at_500.sd, 0.0036, 0.5e-4);
}

TEST(PublishedTables, RecordAFourRunsAreTooFew) {
  const Summary losses = Of(kLossesA);
  EXPECT_NEAR(losses.mean, 3.27960, 1e-12);
  EXPECT_NEAR(losses.sd, 0.0005, 0.5e-4);
  const TTest test = OneSampleTTest(losses, kTarget);
  EXPECT_NEAR(test.t, -1.706, 0.5e-3);
  EXPECT_NEAR(test.p_less, 0.093, 0.5e-3);
  const std::string report = RecordReport({.losses = kLossesA}, {}, kTarget).value();
  EXPECT_THAT(report, HasSubstr("p 0.093\n"));
  EXPECT_THAT(report, HasSubstr("is not met."));
}

TEST(PublishedTables, RecordATimes) {
  const Summary times = Of(kTimesA);
  EXPECT_NEAR(times.mean, 149.6905, 1e-9);
  EXPECT_NEAR(times.sd, 0.0629, 0.5e-4);
  const Summary before = Of(kTimesBeforeA);
  EXPECT_NEAR(before.mean, 150.3843, 0.5e-4);
  EXPECT_NEAR(before.sd, 0.034, 0.5e-3);
  const TTest test = WelchTTest(times, before);  // want: 40-digit arithmetic
  EXPECT_NEAR(test.difference, -0.694, 0.5e-3);
  EXPECT_NEAR(test.t, -18.7372407951, 1e-8);
  EXPECT_NEAR(test.dof, 4.70994666883, 1e-9);
  EXPECT_NEAR(test.p_less / 6.61413600365e-6, 1, 1e-9);
}

TEST(PublishedTables, RecordA1OfTenLosses) {
  EXPECT_NEAR(OneSampleTTest({10, 3.2782, 0.0012}, kTarget).p_less, 0.0005, 0.5e-4);
}

TEST(PublishedTables, Record61Unified) {
  const Summary losses = Of(kLosses61);
  EXPECT_NEAR(losses.mean, 3.27822, 0.51e-5);  // 3.278225 lies half way between two digits
  EXPECT_NEAR(losses.sd, 0.00149, 0.5e-5);
  const TTest test = OneSampleTTest(losses, kTarget);
  EXPECT_NEAR(test.t, -3.370, 0.5e-3);
  EXPECT_NEAR(test.p_less, 0.0060, 0.5e-4);
}

TEST(PublishedTables, Record60FromItsMeanAndDeviation) {
  // The deviation is known to 0.6 %, and so is t; p goes with about t^7.
  const TTest test = OneSampleTTest({8, 3.27833, 0.00082}, kTarget);
  EXPECT_NEAR(test.t, -5.773, 0.006 * 5.773);
  EXPECT_NEAR(test.p_less, 0.00034, 0.05 * 0.00034);
}

TEST(PublishedTables, Record61And60TimesOnOneMachine) {
  const TTest test = WelchTTest({8, 104.458, 0.143}, {8, 105.536, 0.092});  // 40-digit arithmetic
  EXPECT_NEAR(test.t, -17.9315229442, 1e-8);
  EXPECT_NEAR(test.dof, 11.9471626509, 1e-9);
  EXPECT_NEAR(test.p_less / 2.65024578255e-10, 1, 1e-9);
  const TTest losses = WelchTTest(Of(kLosses61), {8, 3.27833, 0.00082});
  EXPECT_NEAR(losses.p_less, 0.432281870262, 1e-9);
}

TEST(PublishedTables, Record60AgainstRecord59) {
  const TTest test = WelchTTest({10, 106.4940, 0.0245}, {8, 107.0998, 0.0763});
  EXPECT_NEAR(test.difference, -0.6058, 1e-9);
  EXPECT_NEAR(test.dof, 8.15923409802, 1e-9);
  EXPECT_NEAR(test.p_less / 8.66370130565e-9, 1, 1e-9);
}

TEST(PublishedTables, Anvil2Certification) {
  // From means to 5e-6 and deviations to 0.5 %: t to 0.7 %, and p goes with about t^13.
  EXPECT_NEAR(OneSampleTTest({18, 3.27731, 0.00099}, kTarget).p_less, 9.4e-10, 0.1 * 9.4e-10);
  const TTest times = WelchTTest({18, 39.914, 0.120}, {9, 73.889, 0.137});  // 40-digit arithmetic
  EXPECT_NEAR(times.p_less / 1.49402379736e-33, 1, 1e-9);
  const TTest losses = WelchTTest({18, 3.27731, 0.00099}, {9, 3.27828, 0.00205});
  EXPECT_NEAR(losses.p_less, 0.104554028026, 1e-9);
}

TEST(RecordReport, EqualLossesAreSaidToBe) {
  EXPECT_THAT(RecordReport({.losses = {3.27, 3.27}}, {}, kTarget).value(),
              AllOf(HasSubstr("all losses are equal, below 3.28: no t exists, and no p"),
                    HasSubstr("is not judged"), Not(HasSubstr("is met"))));
  EXPECT_THAT(RecordReport({.losses = {3.28, 3.28}}, {}, kTarget).value(),
              HasSubstr("all losses are equal, not below 3.28: no t exists, and no p"));
  EXPECT_THAT(RecordReport({.times_s = {2, 2}}, {.times_s = {3, 3}}, kTarget).value(),
              HasSubstr("neither set of times varies: no t exists, and no p"));
}

TEST(RecordReport, NamesTheSampleThatIsTooSmall) {
  const auto message = [](const RunSet& runs, const RunSet& baseline) {
    return std::string(RecordReport(runs, baseline, kTarget).status().message());
  };
  EXPECT_THAT(message({}, {.losses = kLossesB}), HasSubstr("no runs; give logs"));
  EXPECT_THAT(message({.losses = {3.27}}, {}), HasSubstr("losses: 1 value: "));
  EXPECT_THAT(message({.times_s = {139}}, {}), HasSubstr("times: 1 value: "));
  EXPECT_THAT(message({.losses = kLossesB}, {.losses = {3.27}}),
              HasSubstr("baseline's losses: 1 value: "));
  EXPECT_THAT(message({.losses = kLossesB}, {.times_s = {140}}),
              HasSubstr("baseline's times: 1 value: "));
}

TEST(RecordReport, TimesAloneJudgeNoRule) {
  EXPECT_THAT(RecordReport({.times_s = kTimesA}, {}, kTarget).value(),
              HasSubstr("No losses given: the rule for records is not judged."));
}

TEST(ProbabilityText, TellsTheLevelFromItsNeighbours) {
  EXPECT_EQ(ProbabilityText(0.00831727675543), "0.0083");
  EXPECT_EQ(ProbabilityText(0.00998), "0.00998");
  EXPECT_EQ(ProbabilityText(0.0099999), "0.0099999");
  EXPECT_EQ(ProbabilityText(0.01), "0.01");
  EXPECT_EQ(ProbabilityText(1), "1");
}

TEST(ProbabilityText, K2_21_NoProbabilityIsZero) {
  EXPECT_EQ(ProbabilityText(1.5e-299), "1.5e-299");
  EXPECT_EQ(ProbabilityText(0), "< 1e-300");
  EXPECT_EQ(ProbabilityText(4e-310), "< 1e-300");
  // 200 runs, and a mean a thousand standard errors below the target: too small for a double.
  const TTest test = OneSampleTTest({200, 3.28 - 1000 * 1e-9, 1e-9 * std::sqrt(200.0)}, 3.28);
  EXPECT_EQ(ProbabilityText(test.p_less), "< 1e-300");
}

}  // namespace
}  // namespace tools
