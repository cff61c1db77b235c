// The tables of the page, as HTML.
#ifndef TOOLS_REPORT_TABLES_H_
#define TOOLS_REPORT_TABLES_H_

#include <string>
#include <vector>

#include "tools/report/groups.h"
#include "tools/report/trace_file.h"
#include "tools/run_logs/run.h"

namespace tools {

// A row a run: steps, final loss, time, speed, memory, and when the target was reached.
std::string RunsTable(const std::vector<TrainingRun>& runs, double target);

// Groups with their t-tests against the target, and the Welch tests between groups; empty if there
// are no groups.
std::string GroupTables(const std::vector<GroupSummary>& groups, double target);

// A trace's collectives, mean of a step and rank: bytes, times, and what ran meanwhile. Empty if it
// has none.
std::string CollectivesTable(const TraceFile& trace, const std::string& id);

// Train time as people read it: "2 min 19.8 s".
std::string DurationText(double seconds);

}  // namespace tools

#endif  // TOOLS_REPORT_TABLES_H_
