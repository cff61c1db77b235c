// Runs of one program pooled, and programs compared: the statistics of tools/verify_record.
#ifndef TOOLS_REPORT_GROUPS_H_
#define TOOLS_REPORT_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/run_logs/run.h"
#include "tools/verify_record/statistics.h"

namespace tools {

struct GroupSummary {
  std::string name;
  int64_t runs = 0;                     // that count
  std::optional<int64_t> steps = {};    // of each, if they agree
  std::optional<Summary> losses = {};   // of the final validations; absent: see `notes`
  std::optional<Summary> times_s = {};  // of training; absent where a run's time is unknown
  std::optional<TTest> below_target = {};
  std::vector<std::string> notes = {};  // which runs do not count, or why nothing is pooled
};

// Groups in the order of their first run; runs without a group are in none. Only finished runs with
// a finite final loss count, and only runs of equally many steps are pooled, none of which repeats
// another (RepeatedRun).
std::vector<GroupSummary> SummarizeGroups(const std::vector<TrainingRun>& runs, double target);

// Welch's tests of the first against the second, which both have losses.
struct GroupComparison {
  std::string name, baseline;
  TTest losses;
  std::optional<TTest> times_s;
};

// All pairs of groups that have losses, the later against the earlier.
std::vector<GroupComparison> CompareGroups(const std::vector<GroupSummary>& groups);

}  // namespace tools

#endif  // TOOLS_REPORT_GROUPS_H_
