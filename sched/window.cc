#include "sched/window.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

constexpr int kMinLongBlocks = 2;  // half of it is the smallest short window

// Index into long_blocks at a training step; long_blocks.size() in an extension that has a window
// of its own. Never falls as the step grows.
int64_t Part(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  if (schedule.final_in_extension && step >= run.scheduled_steps) {
    return std::ssize(schedule.long_blocks);
  }
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

// The first training step of each part of the run and of its extension, or the next part's first
// for a part without one, run.total() at the end.
std::vector<int64_t> PartStarts(const WindowSchedule& schedule, const RunLength& run) {
  std::vector<int64_t> starts;
  for (int64_t part = 0; part <= std::ssize(schedule.long_blocks); ++part) {
    int64_t low = 0;
    int64_t high = run.total();
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Part(schedule, run, middle) >= part) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    starts.push_back(low);
  }
  return starts;
}

absl::Status CheckBlocks(const char* field, int blocks) {
  if (blocks >= kMinLongBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("window schedule: ", field, " has a window of ", blocks,
                   " blocks; the short window is half of it, so the least is ", kMinLongBlocks));
}

}  // namespace

absl::Status Validate(const WindowSchedule& schedule) {
  if (schedule.block_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("window schedule: block_tokens is ",
                                                   schedule.block_tokens, "; it must be positive"));
  }
  if (schedule.long_blocks.empty()) {
    return absl::InvalidArgumentError("window schedule: long_blocks is empty");
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
  const auto [first, last] = std::ranges::unique(changes);
  changes.erase(first, last);
  std::erase_if(changes, [&](int64_t step) {
    return step == 0 || WindowsAt(schedule, run, step) == WindowsAt(schedule, run, step - 1);
  });
  return changes;
}

std::vector<int> YarnHistory(const WindowSchedule& schedule, const RunLength& run, int64_t step) {
  CHECK_GE(step, 0);
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
