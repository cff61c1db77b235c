// Record of 2025-10-27 of modded-nanogpt's track 1: FixMuonLR.
#ifndef TOOLS_RECIPES_FIX_MUON_LR_H_
#define TOOLS_RECIPES_FIX_MUON_LR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The record: 124M class, 262,144 tokens a step, 2,285 steps.
absl::StatusOr<Recipe> FixMuonLR(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> FixMuonLRDemo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_FIX_MUON_LR_H_
