// A chart of validation losses as an SVG file of its own, for pages that run no script.
#ifndef TOOLS_REPORT_LOSS_SVG_H_
#define TOOLS_REPORT_LOSS_SVG_H_

#include <string>
#include <vector>

#include "tools/run_logs/run.h"

namespace tools {

// What a chart's x axis shows: updates, tokens trained on, or the time of training (in s, min or h,
// by the longest), validations excluded.
enum class LossAxis { kStep, kTokens, kTime };

const char* Name(LossAxis axis);  // "step", "tokens", "time"

struct LossSvg {
  std::string svg;                   // empty: no run has anything to draw
  std::vector<std::string> lacking;  // names of runs whose files do not say x or any loss
};

// Every validation of `runs`, which are Complete, with the loss on a logarithmic axis. Runs of one
// group share a colour: each is a thin line, and a bold one with dots goes through the means of x
// and of the loss, of those steps at which all of them have a finite loss. A run alone is bold. A
// loss that is not finite is a gap. Colours are those of the page, light or dark as the reader's
// system asks; the file needs no script, font or other file.
LossSvg DrawLosses(const std::vector<TrainingRun>& runs, LossAxis axis);

}  // namespace tools

#endif  // TOOLS_REPORT_LOSS_SVG_H_
