// The report: one HTML file that needs no other, and no network.
#ifndef TOOLS_REPORT_PAGE_H_
#define TOOLS_REPORT_PAGE_H_

#include <string>
#include <vector>

#include "tools/report/inputs.h"

namespace tools {

struct PageOptions {
  std::string title = "Training runs";
  double target = 3.28;  // the loss that a record has to be below
};

std::string Page(const Inputs& inputs, const PageOptions& options);

// What a reader has to know of the inputs: cuts, losses that are not finite, files not read. Each
// begins with the run or file that it is about.
std::vector<std::string> InputNotes(const Inputs& inputs);

}  // namespace tools

#endif  // TOOLS_REPORT_PAGE_H_
