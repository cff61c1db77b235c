// Whether two files tell of one run.
#ifndef TOOLS_RUN_LOGS_RUN_COMPARE_H_
#define TOOLS_RUN_LOGS_RUN_COMPARE_H_

#include <cstdint>
#include <optional>

#include "tools/run_logs/run.h"

namespace tools {

// Our printed logs have four digits of a loss after the point and whole milliseconds; two roundings
// of one number differ by at most this.
inline constexpr double kPrintedLoss = 1e-4;
inline constexpr double kPrintedMs = 1;

// Are the numbers at most `tolerance` apart? Two that are not finite are equal.
bool Near(double a, double b, double tolerance);

// What the validations after step 0 that two runs have in common say.
struct Common {
  int64_t validations = 0;
  bool same_losses = true;
  int64_t timed = 0;  // of them, those whose time both know
  bool same_times = true;

  bool OneRun() const { return same_losses && same_times && timed > 0; }
};
Common Compare(const TrainingRun& a, const TrainingRun& b, double loss_tolerance,
               double ms_tolerance);

// False if the numbers of steps that were asked for are known and differ.
bool SamePlan(const TrainingRun& a, const TrainingRun& b);
// Do the runs have the same rows, each with the same numbers?
bool SameRows(const TrainingRun& a, const TrainingRun& b);

// The validation at `step`, or null.
const ValidationRow* ValidationAt(const TrainingRun& run, int64_t step);
// Updates done before the first row.
int64_t FirstStep(const TrainingRun& run);
// Are all steps of `part` among those of `whole`?
bool Covers(const TrainingRun& whole, const TrainingRun& part);

// May `later`, which begins after step 0, be what `earlier` did when it was resumed? That did not
// finish and reaches the step, its clock is not ahead, and both have one loss at that step.
bool MayGoOn(const TrainingRun& earlier, const TrainingRun& later);

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_RUN_COMPARE_H_
