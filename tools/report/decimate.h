// Fewer rows for drawing, without hiding any extreme.
#ifndef TOOLS_REPORT_DECIMATE_H_
#define TOOLS_REPORT_DECIMATE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "tools/run_logs/run.h"

namespace tools {

// Indices of the rows to draw, ascending: all if there are at most `most`. Else the rows are cut
// into most / 4 equal stretches, and of each those with the least and the greatest loss and step
// time stay. So do the first and the last row, each row at which window, batch or learning rate
// leaves a constant or comes to one, the row before it, and each row whose loss is not finite: so
// there may be more than `most`.
std::vector<size_t> RowsToDraw(const std::vector<StepRow>& rows, size_t most);

using Values = std::vector<std::optional<double>>;

// Means of up to `reach` values before, the value itself and as many after: less where the list
// begins or ends, always as many on either side. Absent where the value is, NaN where it is NaN;
// from other means such values are left out.
Values Smooth(const Values& values, size_t reach);

}  // namespace tools

#endif  // TOOLS_REPORT_DECIMATE_H_
