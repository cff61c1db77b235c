// The numbers of the page, as the JSON that its script draws.
#ifndef TOOLS_REPORT_PAGE_DATA_H_
#define TOOLS_REPORT_PAGE_DATA_H_

#include <string>

#include "tools/report/inputs.h"

namespace tools {

// Rows of a run that are drawn at the most, but for corners of schedules and losses that are not
// finite.
inline constexpr size_t kMostDrawnRows = 2000;

// {"target": 3.28,
//  "runs": [{"name", "group", "rows", "drawn", "reach",
//            "train": {"step": [...], "tokens", "time", "loss", "lr", "momentum", "window",
//                      "batch", "step_ms", "rate", "smooth_loss", "smooth_step_ms", "smooth_rate"},
//            "val": {"step", "tokens", "time", "loss"}}],
//  "traces": [{"name", "about",
//              "phases": [{"rank", "step_ms", "ops": {"gemm": ms}, "exposed", "idle"}],
//              "steps": [{"step", "ranks": [{"rank", "span": [begin, end],
//                         "host": [[name, begin, end]], "ops": [[kind, begin, end, ops]],
//                         "collectives": [[name, label, bytes, begin, end, exposed, {kind: ms}]]}
//                        ]}]}]}
// Times of runs are in seconds, those of traces in ms. A column of which nothing is known is
// left out; in the others null is unknown, and "nan" a loss that is not finite. "reach" is that of
// Smooth. May stand within <script>.
std::string PageData(const Inputs& inputs, double target);

}  // namespace tools

#endif  // TOOLS_REPORT_PAGE_DATA_H_
