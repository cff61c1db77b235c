#include "sched/multi_token.h"

#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sched/parts.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

// Of 1 token's weight, what is left in `step`, or nothing, with parts that are not equal.
std::optional<double> LeftAt(const MultiTokenSchedule& schedule, const RunLength& run, int fades_in,
                             int64_t step) {
  const std::vector<double>& ends = schedule.part_ends;
  const auto first = [&](int part) {
    return part == 0               ? 0
           : part < schedule.parts ? FirstStepFrom(ends[part - 1], run)
                                   : run.scheduled_steps;
  };
  const int64_t begin = first(fades_in), end = first(fades_in + 1);
  if (step >= end) return std::nullopt;
  if (step < begin) return 1.0;
  return 1 - static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

absl::Status Validate(const MultiTokenSchedule& schedule) {
  if (schedule.parts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("multi-token schedule: ", schedule.parts, " parts; the least is 1"));
  }
  if (!schedule.part_ends.empty()) {
    const absl::Status s = ValidateEnds("multi-token schedule", schedule.part_ends,
                                        static_cast<size_t>(schedule.parts));
    if (!s.ok()) return s;
  }
  int latest = schedule.parts - 1;
  for (size_t i = 0; i < schedule.farther.size(); ++i) {
    const FartherToken& token = schedule.farther[i];
    if (!std::isfinite(token.weight) || !(token.weight > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("multi-token schedule: the weight of token ",
                                                     i + 2, " is ", token.weight,
                                                     "; it must be positive"));
    }
    if (token.fades_in < 0 || token.fades_in > latest) {
      return absl::InvalidArgumentError(absl::StrCat(
          "multi-token schedule: token ", i + 2, " fades in part ", token.fades_in,
          "; it must be from 0 to ", latest, ", the last part, or that of the token before"));
    }
    latest = token.fades_in;
  }
  return absl::OkStatus();
}

int MaxWeights(const MultiTokenSchedule& schedule) {
  return 1 + static_cast<int>(schedule.farther.size());
}

std::vector<double> LossWeightsAt(const MultiTokenSchedule& schedule, const RunLength& run,
                                  int64_t step) {
  CHECK_GE(step, 0);
  CHECK_GE(schedule.parts, 1);
  const double parts = schedule.parts;
  const double x = run.scheduled_steps == 0
                       ? std::numeric_limits<double>::infinity()
                       : static_cast<double>(step) / static_cast<double>(run.scheduled_steps);
  std::vector<double> weights(1, 1.0);
  for (const FartherToken& token : schedule.farther) {
    if (!schedule.part_ends.empty()) {
      const std::optional<double> left = LeftAt(schedule, run, token.fades_in, step);
      if (!left.has_value()) break;
      weights.push_back(token.weight * *left);
      continue;
    }
    const double begin = token.fades_in / parts;
    const double end = (token.fades_in + 1) / parts;
    if (!(x < end)) break;  // those after it fade no later
    weights.push_back(x < begin ? token.weight : token.weight * ((token.fades_in + 1) - parts * x));
  }
  return weights;
}

}  // namespace sched
