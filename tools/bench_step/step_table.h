// The tables of bench_step, in Markdown.
#ifndef TOOLS_BENCH_STEP_STEP_TABLE_H_
#define TOOLS_BENCH_STEP_STEP_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench_step/ceilings.h"
#include "tools/trainer/run_trace.h"

namespace tools {

// FLOPs of all ops of one step, the mean of `steps`.
double StepFlops(const std::vector<TracedStep>& steps);

// Steps as training runs them, untraced.
struct TimedSteps {
  std::vector<double> step_ms;
  int64_t batch_tokens = 0;
  int64_t memory_bytes = 0;
  double flops = 0;  // of one step
};
// Mean, best and worst time, tokens/s, TFLOP/s, percent of the bf16 ceiling, memory.
std::string StepText(const TimedSteps& timed, const Ceilings& ceilings);

// A row per phase, then `gaps`: what is left of the traced steps when all ops are taken away.
// Figures are of one step, the mean of `steps`, which is not empty.
std::string PhaseTable(const std::vector<TracedStep>& steps, const Ceilings& ceilings);

// A row per op, phase and shape, those first which lose the most time against their floor.
std::string OpTable(const std::vector<TracedStep>& steps, const Ceilings& ceilings);

}  // namespace tools

#endif  // TOOLS_BENCH_STEP_STEP_TABLE_H_
