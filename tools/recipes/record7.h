// Record 7 of modded-nanogpt's track 2 (GPT-2 Medium), of 2025-04-16.
#ifndef TOOLS_RECIPES_RECORD7_H_
#define TOOLS_RECIPES_RECORD7_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The record: 350M class, 524,288 tokens a step, 6,450 steps.
absl::StatusOr<Recipe> Record7(int64_t vocab_size);

// The same layers, rules and schedules at a size that two CPU cores train in about a minute.
absl::StatusOr<Recipe> Record7Demo(int64_t vocab_size);

}  // namespace tools

#endif  // TOOLS_RECIPES_RECORD7_H_
