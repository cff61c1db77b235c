#include "tools/report/groups.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/run_logs/run_list.h"

namespace tools {
namespace {

// Of the runs that count.
struct Sample {
  std::vector<const TrainingRun*> runs;
  std::vector<double> losses, times_s;
  std::set<int64_t> steps;
};

Sample SampleOf(const std::string& group, const std::vector<TrainingRun>& runs,
                std::vector<std::string>* notes) {
  Sample sample;
  for (const TrainingRun& run : runs) {
    if (run.group != group) continue;
    const ValidationRow* const last = run.final_validation();
    if (last == nullptr) {
      notes->push_back(absl::StrCat(run.name, " does not count: it is not finished"));
    } else if (!std::isfinite(last->loss)) {
      notes->push_back(absl::StrCat(run.name, " does not count: its final loss is not finite"));
    } else {
      sample.runs.push_back(&run);
      sample.losses.push_back(last->loss);
      sample.steps.insert(last->step);
      if (last->train_ms.has_value()) sample.times_s.push_back(*last->train_ms / 1000);
    }
  }
  return sample;
}

GroupSummary SummaryOf(const std::string& group, const std::vector<TrainingRun>& runs,
                       double target) {
  GroupSummary summary;
  summary.name = group;
  const Sample sample = SampleOf(group, runs, &summary.notes);
  summary.runs = static_cast<int64_t>(sample.losses.size());
  if (sample.steps.size() > 1) {
    summary.notes.push_back(absl::StrCat("not pooled: the runs have different lengths, ",
                                         absl::StrJoin(sample.steps, " and "), " steps"));
    return summary;
  }
  if (!sample.steps.empty()) summary.steps = *sample.steps.begin();
  if (const std::string repeated = RepeatedRun(sample.runs); !repeated.empty()) {
    summary.notes.push_back(absl::StrCat("not pooled: ", repeated));
    return summary;
  }
  const absl::StatusOr<Summary> losses = Summarize(sample.losses);
  if (!losses.ok()) {
    summary.notes.push_back(absl::StrCat("no statistics: ", losses.status().message()));
    return summary;
  }
  summary.losses = *losses;
  summary.below_target = OneSampleTTest(*losses, target);
  if (sample.times_s.size() < sample.losses.size()) return summary;
  if (const auto times = Summarize(sample.times_s); times.ok()) summary.times_s = *times;
  return summary;
}

}  // namespace

std::vector<GroupSummary> SummarizeGroups(const std::vector<TrainingRun>& runs, double target) {
  std::vector<GroupSummary> groups;
  std::set<std::string> done = {""};
  for (const TrainingRun& run : runs) {
    if (done.insert(run.group).second) groups.push_back(SummaryOf(run.group, runs, target));
  }
  return groups;
}

std::vector<GroupComparison> CompareGroups(const std::vector<GroupSummary>& groups) {
  std::vector<GroupComparison> comparisons;
  for (size_t later = 0; later < groups.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      const GroupSummary &a = groups[later], &b = groups[earlier];
      if (!a.losses.has_value() || !b.losses.has_value()) continue;
      GroupComparison comparison = {a.name, b.name, WelchTTest(*a.losses, *b.losses), {}};
      if (a.times_s.has_value() && b.times_s.has_value()) {
        comparison.times_s = WelchTTest(*a.times_s, *b.times_s);
      }
      comparisons.push_back(comparison);
    }
  }
  return comparisons;
}

}  // namespace tools
