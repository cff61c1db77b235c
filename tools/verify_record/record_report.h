// What the final losses and times of some runs show.
#ifndef TOOLS_VERIFY_RECORD_RECORD_REPORT_H_
#define TOOLS_VERIFY_RECORD_RECORD_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/verify_record/run_set.h"

namespace tools {

// A record needs a p value below this for "the mean final loss is below the target".
inline constexpr double kRecordLevel = 0.01;

// Mean and standard deviation of losses and times; the t-test of the losses against `target`; the
// comparison with `baseline` unless that is empty. Losses that are all equal are not judged.
// InvalidArgument if `runs` is empty, or a sample has one value alone. Ends with a line break.
absl::StatusOr<std::string> RecordReport(const RunSet& runs, const RunSet& baseline, double target);

// Two significant digits, or as many as it takes to tell `p` from kRecordLevel; "< 1e-300" below
// that, since no p of a t-test is 0.
std::string ProbabilityText(double p);

}  // namespace tools

#endif  // TOOLS_VERIFY_RECORD_RECORD_REPORT_H_
