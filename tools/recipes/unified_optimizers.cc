#include "tools/recipes/unified_optimizers.h"

#include <utility>

#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/demo.h"

namespace tools {
namespace {

constexpr int kAdamEvery = 2;  // steps, for all of Adam's labels

model::GptConfig Model(int64_t vocab_size) {
  model::GptConfig model;
  model.vocab_size = vocab_size;
  model.dim = 768;
  model.mlp_dim = 3072;
  model.heads = 6;
  model.head_dim = 128;
  model.gate_features = 12;
  model.value_embeddings = 3;
  model.layers.resize(11);
  model.layers[6].attention = false;
  for (int i : {3, 10}) model.layers[i].long_window = model.layers[i].key_offset = true;
  for (int i : {0, 2, 5, 9}) model.layers[i].paired_heads = true;
  model.layers[0].value_embedding = 1;
  model.layers[1].value_embedding = 2;
  model.layers[8].value_embedding = 0;
  model.layers[9].value_embedding = 1;
  model.layers[10].value_embedding = 2;
  model.layers[6].skip_from = 3;
  model.backout_layer = 7;
  model.storage = model::Storage::kBanks;
  model.matrix_dtype = kernels::DType::kBF16;
  model.mlp_layout = model::MlpLayout::kHiddenDim;
  model.head_layout = model::HeadLayout::kDimVocab;
  model.initial = {.qkv = 1,
                   .mlp = 0.5,
                   .head = 0.005,
                   .head_in_bf16 = true,
                   .embedding_is_head = true,
                   .scalars = {.skip = -1.5f, .stream = 1.1f, .qkv_factor = 0.5f, .backout = 0.5f}};
  model.smear = model.attention_gate = model.attention_factors = true;
  model.rotary_pairs = model::RotaryPairs::kNeighbours;
  model.value_mix = model::ValueMix::kGate;
  model.skip_weight = model::SkipWeight::kGate;
  model.softcap = 23.0f;
  model.softcap_shift = 5.0f;
  model.softcap_temperature = 7.5f;
  model.loss_weights = 3;
  model.fp8_head = true;
  model.fp8_scales = {.x = 100.0 / 448.0, .w = 1.6 / 448.0, .grad = 0.75 / 448.0};
  return model;
}

struct AdamRates {
  double lr_mul, wd_mul, beta1, beta2;
};

optim::ParamRow Adam(const char* label, optim::Comms comms, const AdamRates& rates) {
  optim::ParamRow row;
  row.label = label;
  row.rule = optim::Rule::kAdam;
  row.comms = comms;
  row.lr = 0.008;
  row.lr_mul = rates.lr_mul;
  row.weight_decay = 0.005;
  row.wd_mul = rates.wd_mul;
  row.beta1 = rates.beta1;
  row.beta2 = rates.beta2;
  row.eps = 1e-10;
  row.cautious_decay = true;
  row.every = kAdamEvery;  // its gradient is the sum over both steps
  return row;
}

optim::ParamRow NorMuon(const char* label) {
  optim::ParamRow row;
  row.label = label;
  row.rule = optim::Rule::kNorMuon;
  row.lr = 0.023;
  row.weight_decay = 1.2;
  row.beta2 = 0.95;
  row.aspect_of_view = true;
  row.cautious_decay = true;
  row.mantissa = true;
  return row;
}

optim::OptimizerConfig Optimizer() {
  constexpr optim::Comms kShared = optim::Comms::kSharded, kCopied = optim::Comms::kReplicated;
  const AdamRates value_embedding = {.lr_mul = 75, .wd_mul = 5, .beta1 = 0.75, .beta2 = 0.95};
  const AdamRates gate_bank = {.lr_mul = 1, .wd_mul = 1, .beta1 = 0.9, .beta2 = 0.99};
  const AdamRates head = {.lr_mul = 1, .wd_mul = 150, .beta1 = 0.5, .beta2 = 0.95};
  optim::OptimizerConfig config;
  config.table = {
      NorMuon("attn"),
      NorMuon("mlp"),
      Adam("scalars", kCopied, {.lr_mul = 5, .wd_mul = 0, .beta1 = 0.9, .beta2 = 0.99}),
      Adam("ve0", kShared, value_embedding),
      Adam("ve1", kShared, value_embedding),
      Adam("ve2", kShared, value_embedding),
      Adam("smear_gate", kCopied, {.lr_mul = 0.01, .wd_mul = 0, .beta1 = 0.9, .beta2 = 0.99}),
      Adam("skip_gate", kCopied, {.lr_mul = 0.05, .wd_mul = 0, .beta1 = 0.9, .beta2 = 0.99}),
      Adam("attn_gate_bank", kCopied, gate_bank),
      Adam("ve_gate_bank", kCopied, gate_bank),
      Adam("x0_lambdas", kCopied, {.lr_mul = 5, .wd_mul = 0, .beta1 = 0.65, .beta2 = 0.95}),
      Adam("lm_head", kShared, head),
      Adam("embed", kShared, head)};
  config.table[1].matrix_lr_mul = {1, 2};  // c_fc, c_proj
  config.table.back().tied_to = "lm_head";
  for (const optim::ParamRow& row : config.table) config.scatter_order.push_back(row.label);
  // The small labels first, the banks, whose updates are long, last.
  config.work_order = {
      "scalars", "smear_gate", "skip_gate", "attn_gate_bank", "ve_gate_bank", "x0_lambdas", "ve0",
      "ve1",     "ve2",        "lm_head",   "embed",          "attn",         "mlp"};
  config.grouping = optim::Grouping::kByLabel;
  config.grouping_ranks = 8;
  config.orthogonalizer = "polar_express";
  return config;
}

sched::Schedules Schedules() {
  sched::Schedules schedules;
  schedules.run = {.scheduled_steps = 1725, .extension_steps = 40};
  schedules.learning_rate.cooldown_fraction = 0.5;
  schedules.learning_rate.floor = 0.1;
  schedules.learning_rate.stage_factors = {1.0, 1.52, 1.73};
  schedules.learning_rate.reaches_floor = true;
  schedules.window.block_tokens = 128;
  schedules.window.long_blocks = {3, 7, 11};
  schedules.window.final_yarn_blocks = 13;
  schedules.window.final_long_blocks = 20;
  schedules.window.final_in_extension = true;
  schedules.rotary.head_dim = 128;
  schedules.rotary.base = 1024;
  schedules.rotary.attn_scale = 0.1;
  schedules.momentum = {.start = 0.85, .end = 0.95, .warmup_steps = 300, .cooldown_steps = 50};
  schedules.batch.stages.clear();
  for (const int64_t tokens : {131'072, 262'144, 393'216}) {
    schedules.batch.stages.push_back({.fraction = 1.0 / 3.0, .tokens = tokens});
  }
  schedules.validation.every = 250;
  // 0.5 for the second token ahead until the middle part, in which it fades; 0.25 for the third,
  // fading in the first part.
  schedules.multi_token = {
      .parts = 3, .farther = {{.weight = 0.5, .fades_in = 1}, {.weight = 0.25, .fades_in = 0}}};
  schedules.tying = {.fraction = 2.0 / 3.0, .update_every = kAdamEvery};
  return schedules;
}

}  // namespace

absl::StatusOr<Recipe> UnifiedOptimizers(int64_t vocab_size) {
  Recipe recipe;
  recipe.record = "unified_optimizers";
  recipe.preset = "full";
  recipe.source = "modded-nanogpt, records/track_1_short/2026-01-18_UnifiedOptimizers";
  recipe.target_val_loss = 3.28;
  recipe.model = Model(vocab_size);
  recipe.schedules = Schedules();
  recipe.optimizer = Optimizer();
  return recipe;
}

absl::StatusOr<Recipe> UnifiedOptimizersDemo(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, UnifiedOptimizers(vocab_size));
  return DemoOf(std::move(recipe), 40);
}

}  // namespace tools
