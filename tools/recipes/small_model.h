// A record's model at a width that tests can run.
#ifndef TOOLS_RECIPES_SMALL_MODEL_H_
#define TOOLS_RECIPES_SMALL_MODEL_H_

#include <string>

#include "model/config.h"
#include "third_party/absl_compat/check.h"
#include "tools/recipes/recipe.h"

namespace tools {

// The full preset's model with dim 32, 2 heads, vocabulary 96, and windows of 16-token blocks if it
// has blocks: what the scripts in testdata compute.
inline model::GptConfig SmallModel(const std::string& record) {
  const absl::StatusOr<Recipe> recipe = FindRecipe(record, "full", 96);
  CHECK(recipe.ok()) << recipe.status();
  model::GptConfig model = recipe->model;
  model.dim = 32;
  model.mlp_dim = 128;
  model.heads = 2;
  model.head_dim = 16;
  if (model.window_block > 0) model.window_block = 16;
  return model;
}

}  // namespace tools

#endif  // TOOLS_RECIPES_SMALL_MODEL_H_
