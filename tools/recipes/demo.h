// The demo preset of the records of track 1.
#ifndef TOOLS_RECIPES_DEMO_H_
#define TOOLS_RECIPES_DEMO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/recipes/recipe.h"

namespace tools {

// `full` with the same layers, rules and course of the schedules at a size that two CPU cores
// train in about a minute: width 128, `steps` steps of 4,096 tokens, windows of 16-token blocks.
absl::StatusOr<Recipe> DemoOf(Recipe full, int64_t steps);

}  // namespace tools

#endif  // TOOLS_RECIPES_DEMO_H_
