#include "tools/bench_step/step_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

// Sums over ops.
struct Total {
  double calls = 0, seconds = 0, bytes = 0, flops = 0, floor_s = 0;

  void Add(const kernels::TracedOp& op, const Ceilings& ceilings) {
    calls += 1;
    seconds += op.end_s - op.begin_s;
    bytes += op.cost.bytes;
    flops += op.cost.flops;
    floor_s += ceilings.FloorSeconds(op.cost);
  }
  void Add(const Total& other) {
    calls += other.calls;
    seconds += other.seconds;
    bytes += other.bytes;
    flops += other.flops;
    floor_s += other.floor_s;
  }
  void Scale(double factor) {
    for (double* value : {&calls, &seconds, &bytes, &flops, &floor_s}) *value *= factor;
  }
};

// The columns that all rows share.
std::string Cells(const Total& total) {
  return absl::StrFormat(
      " %.4g | %.3f | %.4g | %.4g | %.3f | %s |", total.calls, total.seconds * 1e3,
      total.bytes / 1e9, total.flops / 1e12, total.floor_s * 1e3,
      total.floor_s > 0 ? absl::StrFormat("%.2f", total.seconds / total.floor_s) : "-");
}

constexpr char kColumns[] = " calls | ms | GB | TFLOP | floor ms | ms / floor |";

}  // namespace

double StepFlops(const std::vector<TracedStep>& steps) {
  double flops = 0;
  for (const TracedStep& step : steps) {
    for (const kernels::TracedOp& op : step.ops) flops += op.cost.flops;
  }
  return flops / steps.size();
}

std::string StepText(const TimedSteps& timed, const Ceilings& ceilings) {
  CHECK(!timed.step_ms.empty());
  const double count = timed.step_ms.size();
  const double mean_s =
      std::accumulate(timed.step_ms.begin(), timed.step_ms.end(), 0.0) / count / 1e3;
  const auto [best, worst] = std::minmax_element(timed.step_ms.begin(), timed.step_ms.end());
  const double rate = timed.flops / mean_s;
  return absl::StrFormat(
      "| step, untraced | |\n|---|---|\n"
      "| steps timed | %d |\n"
      "| ms a step: mean (best, worst) | %.3f (%.3f, %.3f) |\n"
      "| tokens/s | %.0f |\n"
      "| TFLOP a step (products of all ops) | %.4g |\n"
      "| TFLOP/s | %.4g |\n"
      "| of the bf16 ceiling | %.1f %% |\n"
      "| memory, all planned at the start | %.3f GiB |\n",
      timed.step_ms.size(), mean_s * 1e3, *best, *worst, timed.batch_tokens / mean_s,
      timed.flops / 1e12, rate / 1e12, 100 * rate / ceilings.bf16_flops_per_s,
      timed.memory_bytes / double{1 << 30});
}

std::string PhaseTable(const std::vector<TracedStep>& steps, const Ceilings& ceilings) {
  CHECK(!steps.empty());
  std::array<Total, kernels::kOpPhases> phases;
  double step_s = 0;
  for (const TracedStep& step : steps) {
    step_s += step.end_s - step.begin_s;
    for (const kernels::TracedOp& op : step.ops) {
      phases[static_cast<int>(op.cost.phase)].Add(op, ceilings);
    }
  }
  const double per_step = 1.0 / steps.size();
  step_s *= per_step;
  Total all;
  std::string text = absl::StrCat("| phase |", kColumns, "\n|---|---|---|---|---|---|---|\n");
  for (int phase = 0; phase < kernels::kOpPhases; ++phase) {
    phases[phase].Scale(per_step);
    all.Add(phases[phase]);
    absl::StrAppend(&text, "| ", kernels::Name(static_cast<kernels::OpPhase>(phase)), " |",
                    Cells(phases[phase]), "\n");
  }
  absl::StrAppend(&text, "| gaps |", absl::StrFormat(" - | %.3f |", (step_s - all.seconds) * 1e3),
                  " - | - | - | - |\n");
  all.seconds = step_s;
  return absl::StrCat(text, "| traced step |", Cells(all), "\n");
}

std::string OpTable(const std::vector<TracedStep>& steps, const Ceilings& ceilings) {
  CHECK(!steps.empty());
  std::map<std::string, Total> by_name;  // by the row's first cells
  for (const TracedStep& step : steps) {
    for (const kernels::TracedOp& op : step.ops) {
      by_name[absl::StrCat("| ", op.name, " | ", kernels::Name(op.cost.phase), " | ", op.cost.shape,
                           " |")]
          .Add(op, ceilings);
    }
  }
  std::vector<std::pair<std::string, Total>> rows(by_name.begin(), by_name.end());
  for (auto& [name, total] : rows) total.Scale(1.0 / steps.size());
  const auto lost = [](const Total& total) { return total.seconds - total.floor_s; };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return lost(a.second) > lost(b.second); });
  std::string text = absl::StrCat("| op | phase | shape |", kColumns,
                                  " ms over floor |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, total] : rows) {
    absl::StrAppend(&text, name, Cells(total), absl::StrFormat(" %.3f |\n", lost(total) * 1e3));
  }
  return text;
}

}  // namespace tools
