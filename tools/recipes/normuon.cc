#include "tools/recipes/normuon.h"

#include <utility>

#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/demo.h"
#include "tools/recipes/fix_muon_lr.h"

namespace tools {
namespace {

void ChangeOptimizer(optim::OptimizerConfig* config) {
  for (optim::ParamRow& row : config->table) {
    if (row.rule == optim::Rule::kAdam) {
      // The warm-up began without moments, so restoring the state casts none.
      row.moment_dtype = kernels::DType::kBF16;
      continue;
    }
    row.lr = 0.06;
    row.decay_times_lr = true;
    row.moment_dtype = kernels::DType::kF32;
    row.named.clear();  // c_fc learns as fast as c_proj
    // Q, K, V and O are orthogonalised one by one but share second moments and a norm, and the
    // bound of 1e-10 is on their root: both were changed three days later.
    if (row.label == "attn") row.second_moment_as_stored = true;
    row.second_moment_floor = 1e-20;
  }
}

}  // namespace

// What is not named here is as in the record of 2025-10-27.
absl::StatusOr<Recipe> NorMuon(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, FixMuonLR(vocab_size));
  recipe.record = "normuon";
  recipe.source = "modded-nanogpt, records/track_1_short/2025-10-24_NorMuon";
  recipe.schedules.run = {.scheduled_steps = 2275, .extension_steps = 40};
  recipe.schedules.learning_rate.cooldown_fraction = 0.45;
  sched::UseLegacyExtension(&recipe.schedules);
  ChangeOptimizer(&recipe.optimizer);
  return recipe;
}

absl::StatusOr<Recipe> NorMuonDemo(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, NorMuon(vocab_size));
  return DemoOf(std::move(recipe), 40);
}

}  // namespace tools
