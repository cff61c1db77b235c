#include "optim/build_choices.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

// The values of the flags, as words.
#define OPTIM_STRING_INNER(x) #x
#define OPTIM_STRING(x) OPTIM_STRING_INNER(x)

namespace optim {
namespace {

const char kMatrixOptimizer[] = OPTIM_STRING(OPTIM_MATRIX_OPTIMIZER);
const char kOrthogonalizer[] = OPTIM_STRING(OPTIM_ORTHOGONALIZER);
const char kGrouping[] = OPTIM_STRING(OPTIM_GROUPING);

constexpr double kNorMuonBeta2 = 0.95, kAnvilBeta2 = 0.9;
// Engaged at once, since only the recipe knows how long a run is.
constexpr Rails kAnvilRails = {.slow_beta = 0.98, .fast_beta = 0.85, .fast_weight = 0.4385};

// The row of matrices as they are usually trained without Muon (Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization", 2019), with the best rate of 0.001, 0.002, 0.004, 0.008 and
// 0.016 in the demo of 2026-01-18 (docs/optimizers.md, 2026-11-30), where all five are near each
// other; the schedule's multiplier is on it.
ParamRow AdamW(const ParamRow& matrices) {
  ParamRow row;
  row.label = matrices.label;
  row.comms = matrices.comms;
  row.defer_gather = matrices.defer_gather;
  row.mantissa = matrices.mantissa;
  row.rule = Rule::kAdam;
  row.lr = 0.004;
  row.beta1 = 0.9;
  row.beta2 = 0.95;
  row.eps = 1e-8;
  row.eps_in_bias_correction = true;
  row.weight_decay = 0.1;
  return row;
}

bool Is(const std::string& choice, const char* value) { return choice == value; }

}  // namespace

OptimizerConfig WithBuildChoices(OptimizerConfig config, double matrix_lr_mul) {
  std::vector<size_t> matrices;
  for (size_t i = 0; i < config.table.size(); ++i) {
    if (config.table[i].rule != Rule::kAdam) matrices.push_back(i);
  }
  if (Is(kMatrixOptimizer, "muon")) {
    for (ParamRow& row : config.table) {
      if (row.rule == Rule::kAdam) continue;
      row.rule = Rule::kMuon;
      row.rails = {};
      row.second_moment_as_stored = false;
    }
  }
  if (Is(kMatrixOptimizer, "normuon")) {
    for (ParamRow& row : config.table) {
      if (row.rule != Rule::kMuon && row.rule != Rule::kAnvil) continue;
      row.rule = Rule::kNorMuon;
      row.beta2 = kNorMuonBeta2;  // a row of Muon has none
      row.rails = {};
    }
  }
  if (Is(kMatrixOptimizer, "anvil")) {
    for (ParamRow& row : config.table) {
      if (row.rule == Rule::kAdam || row.rule == Rule::kAnvil) continue;
      row.rule = Rule::kAnvil;
      row.beta2 = kAnvilBeta2;
      row.rails = kAnvilRails;
      row.cautious_decay = true;
    }
  }
  if (Is(kMatrixOptimizer, "adamw")) {
    for (ParamRow& row : config.table) {
      if (row.rule != Rule::kAdam) row = AdamW(row);
    }
  }
  for (const size_t row : matrices) config.table[row].lr *= matrix_lr_mul;
  if (!Is(kOrthogonalizer, "recipe")) config.orthogonalizer = kOrthogonalizer;
  if (Is(kGrouping, "by_label")) config.grouping = Grouping::kByLabel;
  if (Is(kGrouping, "by_shape")) config.grouping = Grouping::kByShape;
  if (Is(kGrouping, "custom_sizing")) config.grouping = Grouping::kCustomSizing;
  if (Is(kGrouping, "round_robin")) config.grouping = Grouping::kRoundRobin;
  return config;
}

std::string BuildChoices() {
  return absl::StrCat("matrix_optimizer=", kMatrixOptimizer, " orthogonalizer=", kOrthogonalizer,
                      " grouping=", kGrouping);
}

}  // namespace optim
