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
  const char* preset;
  absl::StatusOr<Recipe> (*make)(int64_t vocab_size);
};

constexpr Row kRecipes[] = {
    {"unified_optimizers", "full", UnifiedOptimizers},
    {"unified_optimizers", "demo", UnifiedOptimizersDemo},
    {"muon_custom_sizing", "full", MuonCustomSizing},
    {"muon_custom_sizing", "demo", MuonCustomSizingDemo},
    {"fix_muon_lr", "full", FixMuonLR},
    {"fix_muon_lr", "demo", FixMuonLRDemo},
    {"normuon", "full", NorMuon},
    {"normuon", "demo", NorMuonDemo},
    {"anvil", "full", Anvil},
    {"anvil", "demo", AnvilDemo},
    {"record7", "full", Record7},
    {"record7", "demo", Record7Demo},
};

// "a, b" of the distinct names that `name` gives.
template <typename F>
std::string Known(const F& name) {
  std::vector<std::string> names;
  for (const Row& row : kRecipes) {
    if (names.empty() || names.back() != name(row)) names.push_back(name(row));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<Recipe> FindRecipe(absl::string_view record, absl::string_view preset,
                                  int64_t vocab_size) {
  bool record_known = false;
  for (const Row& row : kRecipes) {
    if (record != row.record) continue;
    record_known = true;
    if (preset != row.preset) continue;
    ABSL_ASSIGN_OR_RETURN(Recipe recipe, row.make(vocab_size));
    ABSL_RETURN_IF_ERROR(model::Validate(recipe.model));
    return recipe;
  }
  if (!record_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--record=", record, ": no such record; there is ",
                     Known([](const Row& row) { return std::string(row.record); })));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--preset=", preset, ": no such preset; there is full, demo"));
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
