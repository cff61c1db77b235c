// Schedules for tests: numbers that are easy to check, of the size that real runs have.
#ifndef SCHED_TOY_H_
#define SCHED_TOY_H_

#include "sched/schedules.h"

namespace sched {

inline RunLength ToyRun() { return {.scheduled_steps = 1640, .extension_steps = 40}; }

inline LearningRateSchedule ToyLearningRate() { return {.cooldown_fraction = 0.5, .floor = 0.1}; }

inline WindowSchedule ToyWindow() {
  return {.block_tokens = 128,
          .long_blocks = {3, 7, 11},
          .final_yarn_blocks = 13,
          .final_long_blocks = 20};
}

inline RotaryConfig ToyRotary() { return {.head_dim = 128, .base = 1024, .attn_scale = 0.1}; }

inline MomentumSchedule ToyMomentum() { return {.start = 0.85, .end = 0.95, .warmup_steps = 300}; }

inline Schedules ToySchedules() {
  Schedules schedules;
  schedules.run = ToyRun();
  schedules.learning_rate = ToyLearningRate();
  schedules.window = ToyWindow();
  schedules.rotary = ToyRotary();
  schedules.momentum = ToyMomentum();
  schedules.batch.stages = {{.fraction = 1, .tokens = 393'216}};
  schedules.validation.every = 125;
  return schedules;
}

// `toy` after `change`.
template <typename T, typename Change>
T With(T toy, const Change& change) {
  change(toy);
  return toy;
}

}  // namespace sched

#endif  // SCHED_TOY_H_
