// Record of 2026-01-18 of modded-nanogpt's track 1: Unified Optimizers and Transposed LM Head.
#ifndef TOOLS_RECIPES_UNIFIED_OPTIMIZERS_H_
#define TOOLS_RECIPES_UNIFIED_OPTIMIZERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The record: 124M class, 131,072 to 393,216 tokens a step, 1,765 steps.
absl::StatusOr<Recipe> UnifiedOptimizers(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> UnifiedOptimizersDemo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_UNIFIED_OPTIMIZERS_H_
