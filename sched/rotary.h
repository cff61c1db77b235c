// Rotary frequencies and the attention scale, both stretched by YaRN (Peng et al., 2023)
// whenever the long attention window changes.
//
// RotaryAt replays the changes from step 0, so a resumed run needs no state:
//
//   const sched::Rotary rotary = sched::RotaryAt(config, windows, run, step);
//   theta = position * rotary.frequencies[j];  logits = rotary.attn_scale * dot(q, k)
//
// It need only be called again at sched::WindowChanges.
#ifndef SCHED_ROTARY_H_
#define SCHED_ROTARY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "sched/run_length.h"
#include "sched/window.h"

namespace sched {

struct RotaryConfig {
  int head_dim = 0;       // a multiple of 4, at least 8
  double base = 0;        // frequencies go from 1 down to 1 / base
  double attn_scale = 0;  // before any change of the window
  // A frequency that turns at least yarn_beta times in the old window keeps its value, one
  // that turns at most yarn_alpha times is interpolated in full. 1 and 32 are those of the paper.
  double yarn_alpha = 1;
  double yarn_beta = 32;
};

struct Rotary {
  std::vector<float> frequencies;  // radians per token, head_dim / 2 of them
  double attn_scale = 0;

  bool operator==(const Rotary&) const = default;
};

// InvalidArgument, with the value, for one outside its range or not finite.
absl::Status Validate(const RotaryConfig& config);

// With n = head_dim / 4: f_j = base^(-j / (n - 1)) for j < n, and n zeros (features that are
// not rotated). Computed in float64, rounded once to fp32.
Rotary InitialRotary(const RotaryConfig& config);

// `rotary` after a change of the window from old_tokens = old_blocks * block_tokens to
// new_blocks. With s = old_blocks / new_blocks, in fp32:
//   turns_j = old_tokens * f_j / (2 pi)
//   gamma_j = clamp((turns_j - alpha) / (beta - alpha), 0, 1)
//   f_j    <- f_j * (s + gamma_j * (1 - s))
// and in float64 attn_scale <- attn_scale * (0.2 * ln(new_blocks / old_blocks) + 1). CHECKs
// positive sizes.
Rotary AfterYarn(const RotaryConfig& config, const Rotary& rotary, int64_t block_tokens,
                 int old_blocks, int new_blocks);

// The initial state taken through a history of windows, {3, 7, 11} for two changes.
// CHECKs that the history is not empty.
Rotary RotaryAfter(const RotaryConfig& config, int64_t block_tokens,
                   absl::Span<const int> yarn_history);

// The state that work at `step` sees. CHECKs step >= 0.
Rotary RotaryAt(const RotaryConfig& config, const WindowSchedule& windows, const RunLength& run,
                int64_t step);

}  // namespace sched

#endif  // SCHED_ROTARY_H_
