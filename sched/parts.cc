#include "sched/parts.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {

int64_t FirstStepFrom(double fraction, const RunLength& run) {
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(run.scheduled_steps) * (fraction - 1e-9)));
}

absl::Status ValidateEnds(absl::string_view schedule, const std::vector<double>& ends,
                          size_t parts) {
  if (ends.size() + 1 != parts) {
    return absl::InvalidArgumentError(absl::StrCat(schedule, ": ", ends.size(), " ends of ", parts,
                                                   " parts; all but the last have one"));
  }
  double before = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!(ends[i] > before && ends[i] < 1)) {  // also NaN
      return absl::InvalidArgumentError(absl::StrCat(schedule, ": the end of part ", i, " is ",
                                                     ends[i], "; it must lie above ", before,
                                                     " and below 1"));
    }
    before = ends[i];
  }
  return absl::OkStatus();
}

int PartAt(const std::vector<double>& ends, const RunLength& run, int64_t step) {
  size_t part = 0;
  while (part < ends.size() && step >= FirstStepFrom(ends[part], run)) ++part;
  return static_cast<int>(part);
}

std::vector<int64_t> StageStarts(const std::vector<double>& weights, int64_t base_steps,
                                 size_t grown, int64_t growth_steps) {
  CHECK_LT(grown, weights.size());
  double all = 0;
  for (double weight : weights) {
    CHECK_GE(weight, 0.0);
    all += weight;
  }
  std::vector<int64_t> starts(1, 0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    starts.push_back(std::llround(sum / all * static_cast<double>(base_steps)) +
                     (i >= grown ? growth_steps : 0));
  }
  return starts;
}

}  // namespace sched
