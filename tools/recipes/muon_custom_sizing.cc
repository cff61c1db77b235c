#include "tools/recipes/muon_custom_sizing.h"

#include <utility>

#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/demo.h"

namespace tools {
namespace {

model::GptConfig Model(int64_t vocab_size) {
  model::GptConfig model;
  model.vocab_size = vocab_size;
  model.dim = 768;
  model.mlp_dim = 3072;
  model.heads = 6;
  model.head_dim = 128;
  model.gate_features = 12;
  model.value_embeddings = 3;
  model.layers.resize(12);
  model.layers[0].attention = model.layers[0].mlp = false;
  model.layers[7].attention = false;
  for (int i : {4, 11}) model.layers[i].long_window = true;
  model.layers[1].value_embedding = 1;
  model.layers[2].value_embedding = 2;
  model.layers[9].value_embedding = 0;
  model.layers[10].value_embedding = 1;
  model.layers[11].value_embedding = 2;
  for (int i = 6; i <= 10; ++i) model.layers[i].skip_from = 11 - i;
  model.smear = model.attention_gate = true;
  // A smear lambda has a place for each layer, of which the first is read.
  model.spare_scalars = 11;
  model.initial = {.qkv = 0.5,
                   .mlp = 0.5,
                   .value_embeddings = 1,
                   .embedding = 1,
                   .scalars = {.skip = -1.5f, .value = 0.5f, .value_embedding = 0.5f}};
  model.softcap = 30;
  model.softcap_temperature = 7.5f;
  model.fp8_head = true;
  model.fp8_scales = {.w = 1.0 / 512, .grad = 1.0 / 448};
  return model;
}

// The record's table. The order of the rows is the order of work: Adam's parameters as the record
// processes them, then Muon's labels from the smallest to the largest.
optim::OptimizerConfig Optimizer() {
  const auto adam = [](const char* label, double lr_mul) {
    optim::ParamRow row;
    row.label = label;
    row.rule = optim::Rule::kAdam;
    row.lr = 0.008;
    row.lr_mul = lr_mul;
    row.beta1 = 0.8;
    row.beta2 = 0.95;
    row.eps = 1e-8;
    row.moment_dtype = kernels::DType::kBF16;
    return row;
  };
  const auto muon = [](const char* label) {
    optim::ParamRow row;
    row.label = label;
    row.rule = optim::Rule::kMuon;
    row.lr = 0.05;
    return row;
  };
  optim::OptimizerConfig config;
  config.table = {
      adam("scalars", 5), adam("lm_head", 1), adam("embed", 75), adam("value_embed", 75),
      muon("smear_gate"), muon("attn_gate"),  muon("attn"),      muon("mlp")};
  config.grouping = optim::Grouping::kCustomSizing;
  config.grouping_ranks = 8;
  config.orthogonalizer = "newton_schulz";
  return config;
}

sched::Schedules Schedules() {
  sched::Schedules schedules;
  schedules.run = {.scheduled_steps = 1640, .extension_steps = 40};
  schedules.learning_rate = {.cooldown_fraction = 0.5, .floor = 0.1};
  schedules.window.block_tokens = 128;
  schedules.window.long_blocks = {3, 7, 11};
  schedules.window.final_yarn_blocks = 13;
  schedules.window.final_long_blocks = 20;
  schedules.rotary.head_dim = 128;
  schedules.rotary.base = 1024;
  schedules.rotary.attn_scale = 0.1;
  schedules.momentum = {.start = 0.85, .end = 0.95, .warmup_steps = 300};
  schedules.batch.stages = {{.fraction = 1.0, .tokens = 393'216}};
  schedules.validation.every = 125;
  return schedules;
}

}  // namespace

absl::StatusOr<Recipe> MuonCustomSizing(int64_t vocab_size) {
  Recipe recipe;
  recipe.record = "muon_custom_sizing";
  recipe.preset = "full";
  recipe.source = "modded-nanogpt, records/track_1_short/2025-09-23_MuonCustomSizing";
  recipe.target_val_loss = 3.28;
  recipe.model = Model(vocab_size);
  recipe.schedules = Schedules();
  recipe.optimizer = Optimizer();
  return recipe;
}

absl::StatusOr<Recipe> MuonCustomSizingDemo(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, MuonCustomSizing(vocab_size));
  return DemoOf(std::move(recipe), 40);
}

}  // namespace tools
