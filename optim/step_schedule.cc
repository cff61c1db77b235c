#include "optim/step_schedule.h"

#include <algorithm>
#include <numeric>

namespace optim {
namespace {

using Action = ScheduleEntry::Action;

void AppendPart(const StepLayout& layout, const StepKind& kind, const std::vector<int>& launch,
                const std::vector<int>& work, std::vector<ScheduleEntry>* out) {
  const int target = kind.tied && layout.tied.has_value() ? layout.tied->target : -1;
  const auto takes_part = [&](int buffer) {
    return kind.due[buffer] && !(target >= 0 && buffer == layout.tied->source);
  };
  for (int buffer : launch) {
    if (!takes_part(buffer)) continue;
    if (buffer == target) out->push_back({Action::kAddTied, buffer});
    out->push_back({Action::kReduce, buffer});
  }
  std::vector<int> taking_part;
  std::copy_if(work.begin(), work.end(), std::back_inserter(taking_part), takes_part);
  for (int buffer : taking_part) out->push_back({Action::kUpdate, buffer});
  // The target's first, so that the copy runs beside the other gathers.
  std::stable_partition(taking_part.begin(), taking_part.end(),
                        [&](int buffer) { return buffer == target; });
  for (int buffer : taking_part) {
    if (layout.buffer(buffer).defer_gather) continue;
    out->push_back({Action::kFinish, buffer});
    if (buffer == target) out->push_back({Action::kCopyTied, buffer});
  }
  for (int buffer : taking_part) {
    if (layout.buffer(buffer).defer_gather) out->push_back({Action::kFinishLater, buffer});
  }
}

}  // namespace

std::vector<ScheduleEntry> MakeSchedule(const StepLayout& layout, const StepKind& kind) {
  std::vector<ScheduleEntry> schedule;
  if (layout.three_phases()) {
    AppendPart(layout, kind, layout.launch_order, layout.work_order, &schedule);
    return schedule;
  }
  std::vector<int> adam(layout.adam.size()), muon(layout.muon.size());
  std::iota(adam.begin(), adam.end(), 0);
  std::iota(muon.begin(), muon.end(), static_cast<int>(adam.size()));
  AppendPart(layout, kind, adam, adam, &schedule);
  AppendPart(layout, kind, muon, muon, &schedule);
  return schedule;
}

}  // namespace optim
