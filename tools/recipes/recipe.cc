#include "tools/recipes/recipe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/anvil.h"
#include "tools/recipes/fix_muon_lr.h"
#include "tools/recipes/muon_custom_sizing.h"
#include "tools/recipes/normuon.h"
#include "tools/recipes/record7.h"
#include "tools/recipes/unified_optimizers.h"

namespace tools {
namespace {

struct Row {
  const char* record;
  absl::StatusOr<Recipe> (*full)(int64_t vocab_size);
  absl::StatusOr<Recipe> (*demo)(int64_t vocab_size);
};

constexpr Row kRecipes[] = {
    {"unified_optimizers", UnifiedOptimizers, UnifiedOptimizersDemo},
    {"muon_custom_sizing", MuonCustomSizing, MuonCustomSizingDemo},
    {"fix_muon_lr", FixMuonLR, FixMuonLRDemo},
    {"normuon", NorMuon, NorMuonDemo},
    {"anvil", Anvil, AnvilDemo},
    {"record7", Record7, Record7Demo},
};

}  // namespace

std::vector<std::string> RecordNames() {
  std::vector<std::string> names;
  for (const Row& row : kRecipes) names.push_back(row.record);
  return names;
}

absl::StatusOr<Recipe> FindRecipe(absl::string_view record, absl::string_view preset,
                                  int64_t vocab_size) {
  for (const Row& row : kRecipes) {
    if (record != row.record) continue;
    if (preset != "full" && preset != "demo") {
      return absl::InvalidArgumentError(
          absl::StrCat("--preset=", preset, ": no such preset; there is full, demo"));
    }
    const auto make = preset == "full" ? row.full : row.demo;
    ABSL_ASSIGN_OR_RETURN(Recipe recipe, make(vocab_size));
    ABSL_RETURN_IF_ERROR(model::Validate(recipe.model));
    ABSL_RETURN_IF_ERROR(sched::Validate(recipe.schedules));
    return recipe;
  }
  return absl::InvalidArgumentError(absl::StrCat("--record=", record, ": no such record; there is ",
                                                 absl::StrJoin(RecordNames(), ", ")));
}

void Rescale(Recipe* recipe, int64_t total_steps, const sched::KeptSteps& kept) {
  const int64_t old_total = recipe->schedules.run.total();
  for (optim::ParamRow& row : recipe->optimizer.table) {
    row.rails.engaged_from = sched::ScaledSteps(row.rails.engaged_from, old_total, total_steps);
    row.later.from_step = sched::ScaledSteps(row.later.from_step, old_total, total_steps);
  }
  recipe->schedules = sched::Rescaled(recipe->schedules, total_steps, kept);
}

int64_t PaddedVocab(int64_t ids) { return (ids + 127) / 128 * 128; }

}  // namespace tools
