// A model from a file that the trainer wrote, ready to run.
#ifndef TOOLS_SAMPLE_SAVED_MODEL_H_
#define TOOLS_SAMPLE_SAVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/token_map.h"
#include "kernels/queue.h"
#include "model/parameters.h"
#include "tools/recipes/recipe.h"

namespace tools {

struct SavedModel {
  Recipe recipe;                 // with the schedules of the run that wrote it
  int64_t extension_steps = -1;  // as the run's flag said; -1: the recipe's share
  int64_t step = 0;              // updates that the weights have seen
  data::TokenMap token_map;
  std::unique_ptr<model::ParameterArena> weights;  // without gradients
};

// `path`: an --out_dir (its latest checkpoint), a checkpoint's folder, or a model.safetensors.
// NotFound; InvalidArgument for a file whose metadata does not say what model it is.
absl::StatusOr<SavedModel> LoadSavedModel(const std::string& path, kernels::Backend& backend,
                                          kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_SAMPLE_SAVED_MODEL_H_
