// Record of 2025-10-24 of modded-nanogpt's track 1: NorMuon.
#ifndef TOOLS_RECIPES_NORMUON_H_
#define TOOLS_RECIPES_NORMUON_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The record: 124M class, 262,144 tokens a step, 2,315 steps.
absl::StatusOr<Recipe> NorMuon(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> NorMuonDemo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_NORMUON_H_
