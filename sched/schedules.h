// All schedules of a recipe, and what they say about one step.
#ifndef SCHED_SCHEDULES_H_
#define SCHED_SCHEDULES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sched/batch_size.h"
#include "sched/learning_rate.h"
#include "sched/momentum.h"
#include "sched/multi_token.h"
#include "sched/rotary.h"
#include "sched/run_length.h"
#include "sched/tying.h"
#include "sched/validation.h"
#include "sched/window.h"

namespace sched {

struct Schedules {
  RunLength run;
  LearningRateSchedule learning_rate;
  WindowSchedule window;
  RotaryConfig rotary;
  MomentumSchedule momentum;
  BatchSchedule batch;
  ValidationSchedule validation;
  MultiTokenSchedule multi_token;
  TyingSchedule tying;
};

// What the trainer needs to know about a step, except the rotary table: see RotaryAt.
struct StepPlan {
  double lr_multiplier = 0;
  Windows windows;
  bool rotary_changes = false;  // RotaryAt differs from the step before; true at step 0
  double momentum = 0;
  int64_t batch_tokens = 0;
  bool validates = false;  // before it trains
  bool trains = false;     // false from run.total() on
  // LossWeightsAt, rounded to fp32, filled up with zeros to MaxWeights: of equal size in all steps.
  std::vector<float> loss_weights;
  int loss_weight_count = 0;  // before the zeros, at least 1
  bool tied = false;          // head and embedding, before and in the step's update
};

// The first error of the parts.
absl::Status Validate(const Schedules& schedules);

// The rule for the extension steps that the record of 2025-10-27 replaced: the rate's cooldown
// runs on to the last step, and windows and rotary table wait for the last validation. For
// comparison only.
void UseLegacyExtension(Schedules* schedules);
bool HasLegacyExtension(const Schedules& schedules);

// What a run of another length keeps in steps. In modded-nanogpt both are numbers of steps that a
// change of num_iterations leaves alone.
struct KeptSteps {
  int64_t extension = -1;  // extension steps of the new run; -1: in proportion
  bool momentum = false;   // momentum's warm-up and cooldown; false: in proportion
};

// A run of `total_steps` with the same course: `run` as in Rescaled(RunLength), and momentum's
// warm-up (at least 1) and cooldown scaled by ScaledSteps, but for what is `kept`. Fractions
// (cooldown, batch stages, tying) and equal parts (windows, rates, loss weights) follow the run;
// the validation cadence is in steps and stays. CHECKs kept.extension <= total_steps.
Schedules Rescaled(Schedules schedules, int64_t total_steps, const KeptSteps& kept = {});

// Past the end all values stay as at run.total(), without validation. CHECKs step >= 0; the
// schedules have passed Validate.
StepPlan PlanStep(const Schedules& schedules, int64_t step);

}  // namespace sched

#endif  // SCHED_SCHEDULES_H_
