// Record of 2025-09-23 of modded-nanogpt's track 1: Muon with custom group sizes.
#ifndef TOOLS_RECIPES_MUON_CUSTOM_SIZING_H_
#define TOOLS_RECIPES_MUON_CUSTOM_SIZING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The record: 124M class, 393,216 tokens a step, 1,680 steps.
absl::StatusOr<Recipe> MuonCustomSizing(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> MuonCustomSizingDemo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_MUON_CUSTOM_SIZING_H_
