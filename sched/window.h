// Attention windows: the long one grows in equal parts of the run, the short one is half of
// it, and the last validation has windows of its own. Or the long one grows with the step, block by
// block, and there is nothing else to it.
#ifndef SCHED_WINDOW_H_
#define SCHED_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

// Windows are counted in blocks of `block_tokens`; short = long div 2 (3 -> 1, 7 -> 3).
struct WindowSchedule {
  int64_t block_tokens = 0;
  std::vector<int> long_blocks = {};  // in training, one per part of the run
  // Where parts end, see ValidateEnds; none: they are equal.
  std::vector<double> part_ends = {};
  // At the last validation the rotary table is stretched (YaRN) to final_yarn_blocks, of
  // which the short window is half, and the long window opens to final_long_blocks.
  int final_yarn_blocks = 0;
  int final_long_blocks = 0;
  // The extension trains at the window of final_yarn_blocks, and the table is stretched when it
  // begins, instead of both waiting for the last validation.
  bool final_in_extension = false;
  // Not 0: instead of all of the above but block_tokens, the window grows in proportion to the
  // step, to so many tokens in the last one, rounded up to blocks. The rotary table is never
  // stretched. From modded-nanogpt's track 2 (1728 in the record of 2025-04-16).
  int64_t grow_to_tokens = 0;
};

struct Windows {
  int64_t short_tokens = 0;
  int64_t long_tokens = 0;
  int yarn_blocks = 0;  // the window that the rotary table is stretched to; 0: not stretched

  bool operator==(const Windows&) const = default;
};

// InvalidArgument for no or too small windows: every long window is at least 2 blocks, as
// half of less would be a short window of no tokens. For a growing window only block_tokens and
// grow_to_tokens count, and final_in_extension, which does not go with it.
absl::Status Validate(const WindowSchedule& schedule);

// Windows of `step`. With n = long_blocks.size() and N = scheduled_steps, in float64 and in
// this order, the part is floor(n * min(step / (N + 1), 0.9999)), or, if final_in_extension,
// floor(n * (step / N)) for step < N and none from N on. With part_ends it is PartAt, and with
// final_in_extension none from N on. Steps >= run.total() (the last
// validation, and past the end) have the final windows. CHECKs step >= 0.
//
// A growing window is, in float64, the smallest positive multiple of block_tokens that is at least
// grow_to_tokens * min(step / N, 1), of the last validation too; with N == 0 it is grown at every
// step. While it is one block, the short one is half of it rounded down, 0 tokens: attention by
// blocks (that of this record) takes it as one block too.
Windows WindowsAt(const WindowSchedule& schedule, const RunLength& run, int64_t step);

// All steps in [1, run.total()] whose windows differ from those of the step before, ascending.
std::vector<int64_t> WindowChanges(const WindowSchedule& schedule, const RunLength& run);

// long_blocks.front(), to which the initial rotary table belongs, then yarn_blocks of steps
// 0 ... `step`, without repeats: {3, 7} after one change from 3 to 7. A part of a very short
// run that holds no step does not appear. {0} of a growing window. CHECKs step >= 0.
std::vector<int> YarnHistory(const WindowSchedule& schedule, const RunLength& run, int64_t step);

}  // namespace sched

#endif  // SCHED_WINDOW_H_
