#include "tools/trainer/snapshot.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

TrainConfig AConfig() {
  TrainConfig config;
  config.recipe = FindRecipe("muon_custom_sizing", "demo", PaddedVocab(50257)).value();
  config.train_files = {"train.bin"};
  return config;
}

Checkpoint Saved(const TrainConfig& config) {
  Checkpoint checkpoint;
  checkpoint.step = 3;
  RunState state;
  state.step = checkpoint.step;
  state.tokens = 3000;
  checkpoint.state_json = FormatRunState(state, config);
  return checkpoint;
}

TEST(RunState, ComesBack) {
  const absl::StatusOr<RunState> state = ParseRunState(Saved(AConfig()), AConfig());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 3);
  EXPECT_EQ(state->tokens, 3000);
}

TEST(RunState, OtherRatesAreAnotherRun) {
  TrainConfig config = AConfig();
  config.matrix_lr_mul = 0.1;
  EXPECT_TRUE(ParseRunState(Saved(config), config).ok());
  const absl::Status refused = ParseRunState(Saved(config), AConfig()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.message(), "matrix_lr_mul is 0.1 there and 1.0 here"))
      << refused;
}

TEST(RunState, AnotherScheduleIsAnotherRun) {
  TrainConfig config = AConfig();
  config.extension_steps = 2;
  config.momentum_steps = "recipe";
  EXPECT_TRUE(ParseRunState(Saved(config), config).ok());
  const absl::Status extension = ParseRunState(Saved(config), AConfig()).status();
  EXPECT_TRUE(absl::StrContains(extension.message(), "extension_steps is 2 there and -1 here"))
      << extension;
  config.extension_steps = -1;
  const absl::Status momentum = ParseRunState(Saved(AConfig()), config).status();
  EXPECT_TRUE(absl::StrContains(momentum.message(),
                                "momentum_steps is \"scaled\" there and \"recipe\" here"))
      << momentum;
}

// Nor did programs without --extension_steps and --momentum_steps; all was scaled.
TEST(RunState, OlderStatesHaveScaledSteps) {
  Checkpoint older = Saved(AConfig());
  for (const std::string line :
       {"    \"extension_steps\": -1,\n", "    \"momentum_steps\": \"scaled\",\n"}) {
    ASSERT_TRUE(absl::StrContains(older.state_json, line)) << older.state_json;
    older.state_json = absl::StrReplaceAll(older.state_json, {{line, ""}});
  }
  EXPECT_TRUE(ParseRunState(older, AConfig()).ok());
  TrainConfig kept = AConfig();
  kept.momentum_steps = "recipe";
  EXPECT_EQ(ParseRunState(older, kept).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Programs without --matrix_lr_mul wrote no such line; their rates were the recipe's.
TEST(RunState, OlderStatesHaveTheRecipesRates) {
  Checkpoint older = Saved(AConfig());
  const std::string line = "    \"matrix_lr_mul\": 1.0,\n";
  ASSERT_TRUE(absl::StrContains(older.state_json, line)) << older.state_json;
  older.state_json = absl::StrReplaceAll(older.state_json, {{line, ""}});
  EXPECT_TRUE(ParseRunState(older, AConfig()).ok());
  TrainConfig doubled = AConfig();
  doubled.matrix_lr_mul = 2;
  EXPECT_EQ(ParseRunState(older, doubled).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tools
