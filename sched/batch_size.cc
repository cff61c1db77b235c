#include "sched/batch_size.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "sched/parts.h"
#include "third_party/absl_compat/check.h"

namespace sched {
absl::Status Validate(const BatchSchedule& schedule) {
  if (schedule.stages.empty()) {
    return absl::InvalidArgumentError("batch schedule: it has no stage");
  }
  double sum = 0;
  for (size_t i = 0; i < schedule.stages.size(); ++i) {
    const BatchStage& stage = schedule.stages[i];
    const bool of_extension = i > 0 && i + 1 == schedule.stages.size() && stage.fraction == 0;
    if (!(stage.fraction > 0 || of_extension) || stage.tokens < 1) {
      return absl::InvalidArgumentError(absl::StrCat("batch schedule: stage ", i, " has fraction ",
                                                     stage.fraction, " and ", stage.tokens,
                                                     " tokens; both must be positive"));
    }
    sum += stage.fraction;
  }
  // Fractions such as 1/3, typed in with ten digits or more, pass.
  constexpr double kTolerance = 1e-9;
  if (!(std::abs(sum - 1) <= kTolerance)) {
    return absl::InvalidArgumentError(absl::StrCat("batch schedule: the fractions of its ",
                                                   schedule.stages.size(), " stages sum to ", sum,
                                                   "; they must sum to 1"));
  }
  return absl::OkStatus();
}

int64_t BatchTokensAt(const BatchSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  CHECK(!schedule.stages.empty());
  double fraction = 0;
  for (size_t i = 0; i + 1 < schedule.stages.size(); ++i) {
    fraction += schedule.stages[i].fraction;
    if (step < FirstStepFrom(fraction, run)) return schedule.stages[i].tokens;
  }
  return schedule.stages.back().tokens;
}

std::vector<BatchStart> BatchStarts(const BatchSchedule& schedule, const RunLength& run) {
  std::vector<BatchStart> starts;
  starts.push_back({0, BatchTokensAt(schedule, run, 0)});
  double fraction = 0;
  for (const BatchStage& stage : schedule.stages) {
    fraction += stage.fraction;
    const int64_t first = FirstStepFrom(fraction, run);  // of the stage that follows
    if (first >= run.total()) break;
    const int64_t tokens = BatchTokensAt(schedule, run, first);
    if (tokens != starts.back().tokens) starts.push_back({first, tokens});
  }
  return starts;
}

int64_t TrainingTokens(const BatchSchedule& schedule, const RunLength& run) {
  CHECK(!schedule.stages.empty());
  int64_t tokens = 0;
  int64_t begin = 0;
  double fraction = 0;
  for (size_t i = 0; i + 1 < schedule.stages.size(); ++i) {
    fraction += schedule.stages[i].fraction;
    const int64_t end = FirstStepFrom(fraction, run);
    tokens += (end - begin) * schedule.stages[i].tokens;
    begin = end;
  }
  return tokens + (run.total() - begin) * schedule.stages.back().tokens;
}

}  // namespace sched
