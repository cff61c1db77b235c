#include "sched/window.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "sched/parts.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

constexpr int kMinLongBlocks = 2;  // half of it is the smallest short window

bool Grows(const WindowSchedule& schedule) { return schedule.grow_to_tokens > 0; }

// Blocks of a growing window. Exact also where v / block_tokens is rounded.
int64_t GrownBlocks(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  const double progress =
      step >= run.scheduled_steps
          ? 1
          : static_cast<double>(step) / static_cast<double>(run.scheduled_steps);
  const double least = static_cast<double>(schedule.grow_to_tokens) * progress;
  int64_t blocks = static_cast<int64_t>(least / static_cast<double>(schedule.block_tokens));
  if (static_cast<double>(blocks * schedule.block_tokens) < least) ++blocks;
  return std::max<int64_t>(1, blocks);
}

// Index into long_blocks at a training step; long_blocks.size() in an extension that has a window
// of its own. The number of blocks of a growing window. Never falls as the step grows.
int64_t Part(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  if (Grows(schedule)) return GrownBlocks(schedule, run, step);
  if (schedule.final_in_extension && step >= run.scheduled_steps) {
    return std::ssize(schedule.long_blocks);
  }
  if (!schedule.part_ends.empty()) return PartAt(schedule.part_ends, run, step);
  const int64_t steps = run.scheduled_steps + (schedule.final_in_extension ? 0 : 1);
  double progress = static_cast<double>(step) / static_cast<double>(steps);
  if (!schedule.final_in_extension) progress = std::min(progress, 0.9999);
  return static_cast<int64_t>(
      std::floor(static_cast<double>(schedule.long_blocks.size()) * progress));
}

Windows MakeWindows(const WindowSchedule& schedule, int yarn_blocks, int long_blocks) {
  return {.short_tokens = yarn_blocks / 2 * schedule.block_tokens,
          .long_tokens = long_blocks * schedule.block_tokens,
          .yarn_blocks = yarn_blocks};
}

// The first training step of each part that has one, ascending.
std::vector<int64_t> PartStarts(const WindowSchedule& schedule, const RunLength& run) {
  std::vector<int64_t> starts;
  int64_t start = 0;
  while (start < run.total()) {
    starts.push_back(start);
    const int64_t part = Part(schedule, run, start);
    int64_t high = run.total();
    while (start < high) {
      const int64_t middle = start + (high - start) / 2;
      if (Part(schedule, run, middle) > part) {
        high = middle;
      } else {
        start = middle + 1;
      }
    }
  }
  return starts;
}

absl::Status CheckBlocks(const char* field, int blocks) {
  if (blocks >= kMinLongBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("window schedule: ", field, " has a window of ", blocks,
                   " blocks; the short window is half of it, so the least is ", kMinLongBlocks));
}

absl::Status ValidateGrowing(const WindowSchedule& schedule) {
  constexpr int64_t kMaxTokens = int64_t{1} << 30;  // positions of tokens are int32
  if (schedule.grow_to_tokens < 0 || schedule.grow_to_tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("window schedule: grow_to_tokens is ",
                                                   schedule.grow_to_tokens,
                                                   "; it must be from 0 to ", kMaxTokens));
  }
  if (schedule.final_in_extension) {
    return absl::InvalidArgumentError(
        "window schedule: final_in_extension is set, but a growing window has no final one");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const WindowSchedule& schedule) {
  if (schedule.block_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("window schedule: block_tokens is ",
                                                   schedule.block_tokens, "; it must be positive"));
  }
  if (schedule.grow_to_tokens != 0) return ValidateGrowing(schedule);
  if (schedule.long_blocks.empty()) {
    return absl::InvalidArgumentError("window schedule: long_blocks is empty");
  }
  if (!schedule.part_ends.empty()) {
    const absl::Status s =
        ValidateEnds("window schedule", schedule.part_ends, schedule.long_blocks.size());
    if (!s.ok()) return s;
  }
  // Above that many parts, progress 0.9999 would not reach the last one.
  constexpr size_t kMaxParts = 9999;
  if (schedule.long_blocks.size() > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("window schedule: ", schedule.long_blocks.size(),
                                                   " long_blocks; the most is ", kMaxParts));
  }
  for (const int blocks : schedule.long_blocks) {
    if (absl::Status s = CheckBlocks("long_blocks", blocks); !s.ok()) return s;
  }
  if (absl::Status s = CheckBlocks("final_yarn_blocks", schedule.final_yarn_blocks); !s.ok()) {
    return s;
  }
  return CheckBlocks("final_long_blocks", schedule.final_long_blocks);
}

Windows WindowsAt(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  if (Grows(schedule)) {
    const int64_t blocks = GrownBlocks(schedule, run, step);
    return {.short_tokens = blocks / 2 * schedule.block_tokens,
            .long_tokens = blocks * schedule.block_tokens,
            .yarn_blocks = 0};
  }
  if (step >= run.total()) {
    return MakeWindows(schedule, schedule.final_yarn_blocks, schedule.final_long_blocks);
  }
  const int64_t part = Part(schedule, run, step);
  const int blocks = part == std::ssize(schedule.long_blocks) ? schedule.final_yarn_blocks
                                                              : schedule.long_blocks[part];
  return MakeWindows(schedule, blocks, blocks);
}

std::vector<int64_t> WindowChanges(const WindowSchedule& schedule, const RunLength& run) {
  std::vector<int64_t> changes = PartStarts(schedule, run);
  changes.push_back(run.total());
  std::erase_if(changes, [&](int64_t step) {
    return step == 0 || WindowsAt(schedule, run, step) == WindowsAt(schedule, run, step - 1);
  });
  return changes;
}

std::vector<int> YarnHistory(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
  if (Grows(schedule)) return {0};
  std::vector<int> history = {schedule.long_blocks.front()};
  std::vector<int64_t> changes = WindowChanges(schedule, run);
  changes.insert(changes.begin(), 0);  // a run of 0 steps opens with the final windows
  for (const int64_t change : changes) {
    if (change > step) break;
    const int blocks = WindowsAt(schedule, run, change).yarn_blocks;
    if (blocks != history.back()) history.push_back(blocks);
  }
  return history;
}

}  // namespace sched
