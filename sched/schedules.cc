#include "sched/schedules.h"

#include <algorithm>

#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace sched {

absl::Status Validate(const Schedules& schedules) {
  ABSL_RETURN_IF_ERROR(Validate(schedules.run));
  ABSL_RETURN_IF_ERROR(Validate(schedules.learning_rate));
  ABSL_RETURN_IF_ERROR(Validate(schedules.window));
  ABSL_RETURN_IF_ERROR(Validate(schedules.rotary));
  ABSL_RETURN_IF_ERROR(Validate(schedules.momentum));
  ABSL_RETURN_IF_ERROR(Validate(schedules.batch));
  ABSL_RETURN_IF_ERROR(Validate(schedules.validation));
  ABSL_RETURN_IF_ERROR(Validate(schedules.multi_token));
  return Validate(schedules.tying);
}

void UseLegacyExtension(Schedules* schedules) {
  schedules->learning_rate.cools_in_extension = true;
  schedules->window.final_in_extension = false;
}

bool HasLegacyExtension(const Schedules& schedules) {
  return schedules.learning_rate.cools_in_extension && !schedules.window.final_in_extension;
}

Schedules Rescaled(Schedules schedules, int64_t total_steps, const KeptSteps& kept) {
  CHECK_LE(kept.extension, total_steps);
  if (!kept.momentum) {
    schedules.momentum.warmup_steps = std::max<int64_t>(
        1, ScaledSteps(schedules.momentum.warmup_steps, schedules.run.total(), total_steps));
    schedules.momentum.cooldown_steps =
        ScaledSteps(schedules.momentum.cooldown_steps, schedules.run.total(), total_steps);
  }
  schedules.run = Rescaled(schedules.run, total_steps);
  if (kept.extension >= 0) {
    schedules.run = {.scheduled_steps = total_steps - kept.extension,
                     .extension_steps = kept.extension};
  }
  return schedules;
}

StepPlan PlanStep(const Schedules& schedules, int64_t step) {
  const RunLength& run = schedules.run;
  const bool rotary_changes =
      step == 0 || WindowsAt(schedules.window, run, step).yarn_blocks !=
                       WindowsAt(schedules.window, run, step - 1).yarn_blocks;
  const std::vector<double> weights = LossWeightsAt(schedules.multi_token, run, step);
  StepPlan plan = {.lr_multiplier = LearningRateMultiplier(schedules.learning_rate, run, step),
                   .windows = WindowsAt(schedules.window, run, step),
                   .rotary_changes = rotary_changes,
                   .momentum = MomentumAt(schedules.momentum, run, step),
                   .batch_tokens = BatchTokensAt(schedules.batch, run, step),
                   .validates = IsValidationStep(schedules.validation, run, step),
                   .trains = step < run.total(),
                   .loss_weights = std::vector<float>(weights.begin(), weights.end()),
                   .loss_weight_count = static_cast<int>(weights.size()),
                   .tied = IsTied(schedules.tying, run, step)};
  plan.loss_weights.resize(MaxWeights(schedules.multi_token));
  return plan;
}

}  // namespace sched
