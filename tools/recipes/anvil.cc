#include "tools/recipes/anvil.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "sched/parts.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/demo.h"
#include "tools/recipes/unified_optimizers.h"

namespace tools {
namespace {

constexpr int64_t kBaseSteps = 1122, kGrowthSteps = 52, kExtensionSteps = 20;
constexpr int64_t kEngagedFrom = 514;
constexpr int64_t kSlowerFrom = 336;  // the value embeddings' updates
// Of the MLP bank: the one behind the eleven layers.
constexpr int kMlpSlots = 12, kDeadSlot = 11;

// One row for each of the two banks that attention has here.
void SplitAttention(std::vector<optim::ParamRow>* table) {
  optim::ParamRow& qk = table->front();
  CHECK_EQ(qk.label, "attn");
  qk.label = "qk";
  optim::ParamRow vo = qk;
  vo.label = "vo";
  table->insert(table->begin() + 1, vo);
}

void MakeAnvil(optim::ParamRow* row) {
  row->rule = optim::Rule::kAnvil;
  row->weight_decay = 2.25;
  row->beta2 = 0.9;
  row->rails = {
      .slow_beta = 0.98, .fast_beta = 0.85, .fast_weight = 0.4385, .engaged_from = kEngagedFrom};
}

// Labels, Adam and what else is not named here are as in the record of 2026-01-18.
void ChangeOptimizer(optim::OptimizerConfig* config) {
  SplitAttention(&config->table);
  for (optim::ParamRow& row : config->table) {
    if (row.rule != optim::Rule::kAdam) {
      MakeAnvil(&row);
      row.defer_gather = true;
    }
    if (row.label == "ve0" || row.label == "ve1" || row.label == "ve2") {
      row.lr_mul = 70;
      row.later = {.from_step = kSlowerFrom, .every = 2 * row.every};
      row.sparse_rows = true;
    }
    if (row.label == "mlp") {
      row.matrix_lr_mul.clear();
      for (int slot = 0; slot < kMlpSlots; ++slot) {
        const double factor = slot == kDeadSlot ? 0 : 1;
        row.matrix_lr_mul.push_back(factor);      // c_fc
        row.matrix_lr_mul.push_back(2 * factor);  // c_proj
      }
    }
  }
  config->scatter_order = {"qk",
                           "vo",
                           "mlp",
                           "ve0",
                           "ve1",
                           "ve2",
                           "lm_head",
                           "embed",
                           "scalars",
                           "smear_gate",
                           "skip_gate",
                           "ve_gate_bank",
                           "attn_gate_bank",
                           "x0_lambdas"};
  // The MLPs last: their gather is the longest, and the next step needs it last.
  config->work_order = {"qk",         "vo",        "lm_head",      "embed",
                        "ve0",        "ve1",       "ve2",          "scalars",
                        "smear_gate", "skip_gate", "ve_gate_bank", "attn_gate_bank",
                        "x0_lambdas", "mlp"};
  config->orthogonalizer = "anvil_cascade";
  config->flat_replicated = true;
}

void ChangeSchedules(sched::Schedules* schedules) {
  // The last 0.06 of the third stage is the taper.
  const std::vector<int64_t> starts =
      sched::StageStarts({0.2854, 0.3209, 0.3931 - 0.06, 0.06}, kBaseSteps, 2, kGrowthSteps);
  const auto scheduled = static_cast<double>(starts.back());
  std::vector<double> ends, lengths;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    ends.push_back(static_cast<double>(starts[i + 1]) / scheduled);
    lengths.push_back(static_cast<double>(starts[i + 1] - starts[i]) / scheduled);
  }
  schedules->run = {.scheduled_steps = starts.back(), .extension_steps = kExtensionSteps};
  schedules->learning_rate.cooldown_fraction = 0.8;
  schedules->learning_rate.floor = 0.3;
  schedules->learning_rate.stage_factors = {1.0, 1.52, 1.73, 1.73 * std::sqrt(20.0 / 24.0)};
  schedules->learning_rate.stage_ends = {ends[0], ends[1], ends[2]};
  schedules->learning_rate.cools_from_whole_step = true;
  schedules->window.part_ends = {ends[0], ends[1]};
  schedules->momentum = {.start = 0.85, .end = 0.93, .warmup_steps = 240, .cooldown_steps = 50};
  schedules->batch.stages = {{.fraction = lengths[0], .tokens = 131'072},
                             {.fraction = lengths[1], .tokens = 262'144},
                             {.fraction = lengths[2], .tokens = 393'216},
                             {.fraction = lengths[3], .tokens = 327'680},
                             {.fraction = 0, .tokens = 131'072}};
  schedules->multi_token.part_ends = {ends[0], ends[1]};
  schedules->tying.fraction = 1;  // they part in the extension
}

}  // namespace

absl::StatusOr<Recipe> Anvil(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, UnifiedOptimizers(vocab_size));
  recipe.record = "anvil";
  recipe.source = "modded-nanogpt, pull request 360 (ANVIL2); the model is that of 2026-01-18";
  recipe.model.mlp_dim = 2816;
  recipe.model.split_attention_banks = true;
  recipe.model.initial.qkv = recipe.model.initial.o = 0.5;
  ChangeSchedules(&recipe.schedules);
  ChangeOptimizer(&recipe.optimizer);
  return recipe;
}

absl::StatusOr<Recipe> AnvilDemo(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, Anvil(vocab_size));
  return DemoOf(std::move(recipe), 40);
}

}  // namespace tools
