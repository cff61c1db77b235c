// state.json of a checkpoint, as a file that may hold anything.
#include <cstddef>
#include <cstdint>
#include <string>

#include "third_party/absl_compat/check.h"
#include "tools/recipes/recipe.h"
#include "tools/trainer/snapshot.h"

namespace {

tools::TrainConfig Config() {
  tools::TrainConfig config;
  absl::StatusOr<tools::Recipe> recipe =
      tools::FindRecipe("muon_custom_sizing", "demo", tools::PaddedVocab(50257));
  CHECK(recipe.ok()) << recipe.status();
  config.recipe = *std::move(recipe);
  config.train_files = {"train.bin"};
  return config;
}

}  // namespace

// The step of the checkpoint's folder is 3, as in the corpus.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tools::TrainConfig& config = *new tools::TrainConfig(Config());
  tools::Checkpoint checkpoint;
  checkpoint.step = 3;
  checkpoint.state_json.assign(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tools::RunState> state = tools::ParseRunState(checkpoint, config);
  if (!state.ok()) {
    CHECK(!state.status().message().empty());
    return 0;
  }
  // What is accepted is understood in full: written again, it says the same.
  checkpoint.state_json = tools::FormatRunState(*state, config);
  const absl::StatusOr<tools::RunState> again = tools::ParseRunState(checkpoint, config);
  CHECK(again.ok()) << again.status();
  CHECK(again->tokens == state->tokens && again->loader == state->loader &&
        again->stream_hash == state->stream_hash && again->updates == state->updates);
  return 0;
}
