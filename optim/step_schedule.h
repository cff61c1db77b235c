// In which order a step does what to its buffers. The optimizer runs this list, and --plan prints
// it: there is no other description of the order.
#ifndef OPTIM_STEP_SCHEDULE_H_
#define OPTIM_STEP_SCHEDULE_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "optim/step_layout.h"

namespace optim {

struct ScheduleEntry {
  enum class Action : uint8_t {
    kAddTied,      // the tied source's gradient, transposed, to the target's
    kReduce,       // launch the reduction of the gradient
    kUpdate,       // wait for it, update, launch the gather
    kFinish,       // wait for the gather
    kCopyTied,     // the tied target's new weights, transposed, to the source
    kFinishLater,  // leave the gather in flight, for the flush between this step and the next
  };
  Action action;
  int buffer;  // of StepLayout; for the tied pair's own entries, the target
};

// Two parts: Adam's buffers launch all their reductions, then update, then finish, each time in the
// order of the table; then the matrices' likewise. Three phases: the same over all buffers, by
// scatter_order and work_order, those of one label in their own order. Buffers that are not due
// are left out, and while tied the source is. The gathers that are finished later are the last
// entries, in the order of their launches.
std::vector<ScheduleEntry> MakeSchedule(const StepLayout& layout, const StepKind& kind);

}  // namespace optim

#endif  // OPTIM_STEP_SCHEDULE_H_
