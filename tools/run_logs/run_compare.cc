#include "tools/run_logs/run_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tools {
namespace {

// A checkpoint's weights may be validated on other ranks and kernels when a run is resumed.
constexpr double kSameWeights = 1e-3;

bool Equal(const std::optional<double>& a, const std::optional<double>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a.has_value() || Near(*a, *b, 0);
}

// The latest clock of the rows up to `step`.
std::optional<double> ClockUpTo(const TrainingRun& run, int64_t step) {
  std::optional<double> clock;
  for (const StepRow& row : run.steps) {
    if (row.step <= step && row.train_ms.has_value()) clock = row.train_ms;
  }
  for (const ValidationRow& row : run.validations) {
    if (row.step > step || !row.train_ms.has_value()) continue;
    if (!clock.has_value() || *row.train_ms > *clock) clock = row.train_ms;
  }
  return clock;
}

std::optional<double> FirstClock(const TrainingRun& run) {
  std::optional<double> clock;
  if (!run.steps.empty()) clock = run.steps.front().train_ms;
  if (!run.validations.empty() && run.validations.front().step <= FirstStep(run)) {
    clock = run.validations.front().train_ms;
  }
  return clock;
}

}  // namespace

bool Near(double a, double b, double tolerance) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a) == std::isfinite(b);
  return std::abs(a - b) <= tolerance;
}

Common Compare(const TrainingRun& a, const TrainingRun& b, double loss_tolerance,
               double ms_tolerance) {
  Common common;
  size_t i = 0, k = 0;
  while (i < a.validations.size() && k < b.validations.size()) {
    const ValidationRow &x = a.validations[i], &y = b.validations[k];
    if (x.step != y.step) {
      (x.step < y.step ? i : k) += 1;
      continue;
    }
    ++i, ++k;
    if (x.step <= 0) continue;
    ++common.validations;
    if (!Near(x.loss, y.loss, loss_tolerance)) common.same_losses = false;
    if (!x.train_ms.has_value() || !y.train_ms.has_value()) continue;
    ++common.timed;
    if (!Near(*x.train_ms, *y.train_ms, ms_tolerance)) common.same_times = false;
  }
  return common;
}

bool SamePlan(const TrainingRun& a, const TrainingRun& b) {
  return !a.planned_steps.has_value() || !b.planned_steps.has_value() ||
         *a.planned_steps == *b.planned_steps;
}

bool SameRows(const TrainingRun& a, const TrainingRun& b) {
  return SamePlan(a, b) &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](const StepRow& x, const StepRow& y) {
                      return x.step == y.step && Equal(x.loss, y.loss) &&
                             Equal(x.train_ms, y.train_ms) && Equal(x.step_ms, y.step_ms);
                    }) &&
         std::equal(a.validations.begin(), a.validations.end(), b.validations.begin(),
                    b.validations.end(), [](const ValidationRow& x, const ValidationRow& y) {
                      return x.step == y.step && Near(x.loss, y.loss, 0) &&
                             Equal(x.train_ms, y.train_ms);
                    });
}

int64_t FirstStep(const TrainingRun& run) {
  const int64_t trained = run.steps.empty() ? INT64_MAX : run.steps.front().step - 1;
  return run.validations.empty() ? trained : std::min(trained, run.validations.front().step);
}

const ValidationRow* ValidationAt(const TrainingRun& run, int64_t step) {
  for (const ValidationRow& row : run.validations) {
    if (row.step == step) return &row;
  }
  return nullptr;
}

bool Covers(const TrainingRun& whole, const TrainingRun& part) {
  return FirstStep(whole) <= FirstStep(part) && whole.last_step() >= part.last_step();
}

bool MayGoOn(const TrainingRun& earlier, const TrainingRun& later) {
  const int64_t begin = FirstStep(later);
  if (earlier.group != later.group || !SamePlan(earlier, later)) return false;
  if (earlier.final_validation() != nullptr || FirstStep(earlier) >= begin) return false;
  if (earlier.last_step() < begin || earlier.last_step() >= later.last_step()) return false;
  const std::optional<double> before = ClockUpTo(earlier, begin), after = FirstClock(later);
  if (before.has_value() && after.has_value() && *after < *before - kPrintedMs) return false;
  const ValidationRow *const a = ValidationAt(earlier, begin), *const b =
                                                                   ValidationAt(later, begin);
  return a == nullptr || b == nullptr || Near(a->loss, b->loss, kSameWeights);
}

}  // namespace tools
