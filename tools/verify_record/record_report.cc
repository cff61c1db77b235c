#include "tools/verify_record/record_report.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/verify_record/statistics.h"

namespace tools {
namespace {

// StudentTCdf() loses digits where doubles do, and is 0 below them.
constexpr double kLeastProbability = 1e-300;

// The summary, or an error that names the sample.
absl::StatusOr<Summary> SummaryOf(absl::string_view what, const std::vector<double>& sample) {
  const absl::StatusOr<Summary> summary = Summarize(sample);
  if (summary.ok()) return *summary;
  return absl::Status(summary.status().code(),
                      absl::StrCat(what, ": ", summary.status().message()));
}

// The precision of published tables first, then two more digits.
void AppendSummary(absl::string_view what, const Summary& summary, absl::string_view unit,
                   std::string* text) {
  absl::StrAppendFormat(text, "%s of %d runs: %.4f +- %.4f%s (mean %.6f, sd %.6f)\n", what,
                        summary.n, summary.mean, summary.sd, unit, summary.mean, summary.sd);
}

void AppendStepTime(double mean_s, const RunSet& runs, std::string* text) {
  if (!runs.steps.has_value()) return;
  absl::StrAppendFormat(text, "  %d steps of %.3f ms\n", *runs.steps,
                        1000 * mean_s / static_cast<double>(*runs.steps));
}

void AppendRule(const TTest& test, double target, std::string* text) {
  if (test.no_variance) {
    absl::StrAppendFormat(
        text,
        "  all losses are equal, %s %g: no t exists, and no p; are these copies of one run?\n"
        "The rule for records is not judged: it needs runs that differ.\n",
        test.difference < 0 ? "below" : "not below", target);
    return;
  }
  absl::StrAppendFormat(text,
                        "  one-sided t-test against %g: t %.4f, %.0f degrees of freedom, p %s\n",
                        target, test.t, test.dof, ProbabilityText(test.p_less));
  absl::StrAppendFormat(text, "The rule for records, mean loss below %g with p < %g, is %s.\n",
                        target, kRecordLevel, test.p_less < kRecordLevel ? "met" : "not met");
}

void AppendComparison(absl::string_view what, const Summary& sample, const Summary& baseline,
                      absl::string_view unit, std::string* text) {
  const TTest test = WelchTTest(sample, baseline);
  absl::StrAppendFormat(text, "  difference of %s: %+.4f%s (%+.2f %%)\n", what, test.difference,
                        unit, 100 * test.difference / baseline.mean);
  if (test.no_variance) {
    absl::StrAppendFormat(text, "  neither set of %s varies: no t exists, and no p\n", what);
    return;
  }
  absl::StrAppendFormat(
      text, "  Welch's t-test: t %.4f, %.2f degrees of freedom, p %s (lower), %s (two-sided)\n",
      test.t, test.dof, ProbabilityText(test.p_less), ProbabilityText(test.p_two_sided));
}

absl::Status AppendLosses(const RunSet& runs, const RunSet& baseline, double target,
                          std::string* text) {
  if (runs.losses.empty()) {
    absl::StrAppend(text, "No losses given: the rule for records is not judged.\n");
  } else {
    ABSL_ASSIGN_OR_RETURN(const Summary losses, SummaryOf("losses", runs.losses));
    AppendSummary("losses", losses, "", text);
    AppendRule(OneSampleTTest(losses, target), target, text);
  }
  if (baseline.losses.empty()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const Summary base, SummaryOf("baseline's losses", baseline.losses));
  AppendSummary("baseline's losses", base, "", text);
  if (runs.losses.empty()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const Summary losses, SummaryOf("losses", runs.losses));
  AppendComparison("losses", losses, base, "", text);
  return absl::OkStatus();
}

absl::Status AppendTimes(const RunSet& runs, const RunSet& baseline, std::string* text) {
  if (!runs.times_s.empty()) {
    ABSL_ASSIGN_OR_RETURN(const Summary times, SummaryOf("times", runs.times_s));
    AppendSummary("times", times, " s", text);
    AppendStepTime(times.mean, runs, text);
  }
  if (baseline.times_s.empty()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const Summary base, SummaryOf("baseline's times", baseline.times_s));
  AppendSummary("baseline's times", base, " s", text);
  AppendStepTime(base.mean, baseline, text);
  if (runs.times_s.empty()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const Summary times, SummaryOf("times", runs.times_s));
  AppendComparison("times", times, base, " s", text);
  return absl::OkStatus();
}

}  // namespace

std::string ProbabilityText(double p) {
  if (p < kLeastProbability) return absl::StrFormat("< %g", kLeastProbability);
  std::string text;
  // 17 digits tell any two doubles apart.
  for (int digits = 2; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, p);
    if (p == kRecordLevel || std::strtod(text.c_str(), nullptr) != kRecordLevel) break;
  }
  return text;
}

absl::StatusOr<std::string> RecordReport(const RunSet& runs, const RunSet& baseline,
                                         double target) {
  if (runs.empty()) {
    return absl::InvalidArgumentError(
        "no runs; give logs as arguments or as --logs, or numbers as --losses and --times");
  }
  std::string text;
  ABSL_RETURN_IF_ERROR(AppendLosses(runs, baseline, target, &text));
  ABSL_RETURN_IF_ERROR(AppendTimes(runs, baseline, &text));
  return text;
}

}  // namespace tools
