// Weights of the loss of several tokens ahead (multi-token prediction: Gloeckle et al., 2024), of
// which the farther ones fade out while training: modded-nanogpt, record of 2026-01-18.
#ifndef SCHED_MULTI_TOKEN_H_
#define SCHED_MULTI_TOKEN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sched/run_length.h"

namespace sched {

// A token after the next one.
struct FartherToken {
  double weight = 0;  // positive
  int fades_in = 0;   // the part of the run in which the weight falls to 0; absent from then on
};

struct MultiTokenSchedule {
  int parts = 1;  // of the scheduled steps
  // Where parts end, see ValidateEnds; none: they are equal.
  std::vector<double> part_ends = {};
  // Of the tokens 2, 3, ... ahead. A farther one does not fade later than a nearer one, so that
  // those present are always the first ones. None: the next token alone.
  std::vector<FartherToken> farther = {};
};

// InvalidArgument, with the value, for no part, a weight that is not positive or not finite, a part
// outside [0, parts), or one later than that of the token before.
absl::Status Validate(const MultiTokenSchedule& schedule);

// The most weights that a step can have: 1 + farther.size().
int MaxWeights(const MultiTokenSchedule& schedule);

// Weights of the tokens 1, 2, ... ahead; the first is 1. With x = step / scheduled_steps, n parts
// and j = fades_in, in float64 and in this order, a farther token's is
//   weight                        for x < j / n
//   weight * ((j + 1) - n * x)    for x < (j + 1) / n
// and it is absent from then on. With part_ends, and the parts' steps counted by PartAt, it falls
// in the same way from the first step of part j to that of part j + 1 (or scheduled_steps). With no
// scheduled steps all are absent. CHECKs step >= 0.
std::vector<double> LossWeightsAt(const MultiTokenSchedule& schedule, const RunLength& run,
                                  int64_t step);

}  // namespace sched

#endif  // SCHED_MULTI_TOKEN_H_
