// The model of 2026-01-18 (Unified Optimizers) with the optimizer and the schedules of
// modded-nanogpt's later mainline: ANVIL2, pull request 360, official record 92.
#ifndef TOOLS_RECIPES_ANVIL_H_
#define TOOLS_RECIPES_ANVIL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// Taken: attention in two banks, of pairs of heads of Q and K and of V and O, with their initial
// weights (one bank's are twice as wide, and zero for O); twin-rail momentum, the whitening
// cascade, lanes, decay by the slow rail's sign, frozen matrices and the rates of all labels that
// the model has; the value embeddings' slower cadence from step 336 on, and that only such of their
// rows move between ranks as are read; MLPs of 2816; the order of the step, gathers of the banks
// that the next step waits for, and one all-reduce of each dtype for all replicated labels; four
// unequal stages and an extension with batches, windows, rates, momentum and loss weights of their
// own; the step at which head and embedding part.
//
// Not taken, being the later model's: its layer table (layers without attention or MLP, narrow
// heads, MUDD, a second MLP), the n-gram table, sampled softmax and prefix loss, per-stage caps on
// documents, attention scales of their own. The value embeddings' gradients travel as f32, not
// fp16. So neither its step time nor its loss is to be expected, and no run of this recipe at full
// size has been made.
absl::StatusOr<Recipe> Anvil(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> AnvilDemo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_ANVIL_H_
