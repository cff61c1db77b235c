#include "tools/recipes/record7.h"

#include <utility>

#include "data/token_map.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/recipes/demo.h"

namespace tools {
namespace {

constexpr int64_t kSlotTokens = 65'536;

model::GptConfig Model(int64_t vocab_size) {
  model::GptConfig model;
  model.vocab_size = vocab_size;
  // The record's tables have no rows for the padding ids, which the head has.
  const bool gpt2 = vocab_size == PaddedVocab(data::kGpt2Vocabulary);
  model.embedding_rows = gpt2 ? data::kGpt2Vocabulary : 0;
  model.dim = 1024;
  model.mlp_dim = 4096;
  model.heads = 8;
  model.head_dim = 128;
  model.value_embeddings = 3;
  model.layers.resize(16);
  model.layers[7].attention = false;
  for (int i : {0, 4, 11, 15}) model.layers[i].long_window = true;
  for (int k = 0; k < 3; ++k) {
    model.layers[k].value_embedding = model.layers[13 + k].value_embedding = k;
  }
  model.layers[9].skip_from = 6;
  model.layers[10].skip_from = 4;
  model.layers[11].skip_from = 2;
  model.names = {.mlp_first = "fc_w",
                 .mlp_second = "proj_w",
                 .mlp_first_label = "fc",
                 .mlp_second_label = "proj",
                 .head = "lm_head_w"};
  model.matrix_dtype = kernels::DType::kBF16;
  model.qkvo_shape = model::QkvoShape::kStack;
  model.mlp_layout = model::MlpLayout::kOutIn;
  model.head_dtype = kernels::DType::kF32;
  model.initial = {.qkv = 0.5,
                   .mlp = 0.5,
                   .value_embeddings = 1,
                   .embedding = 1,
                   .scalars = {.skip = 1, .value = 0.5f, .value_embedding = 0.5f}};
  model.attention_input = model::AttentionInput::kStream;
  model.rotary_dtype = kernels::DType::kF32;
  model.value_norm = true;
  model.skip_weight = model::SkipWeight::kPlain;
  model.window_block = 128;
  model.softcap_kind = kernels::SoftCap::kIsru;
  model.softcap = 15.0f;
  return model;
}

optim::ParamRow Adam(const char* label, double lr, kernels::DType moments) {
  optim::ParamRow row;
  row.label = label;
  row.rule = optim::Rule::kAdam;
  row.comms = optim::Comms::kReplicated;
  row.lr = lr;
  row.beta1 = 0.8;
  row.beta2 = 0.95;
  // The record's loss is the mean over a slot's tokens, ours the sum. Adam does not see a factor of
  // its gradients except beside the epsilon.
  row.eps = 1e-10 * kSlotTokens;
  row.eps_in_bias_correction = true;
  row.moment_dtype = moments;
  return row;
}

optim::ParamRow Muon(const char* label, double wd_mul) {
  optim::ParamRow row;
  row.label = label;
  row.rule = optim::Rule::kMuon;
  row.lr = 0.025;
  row.weight_decay = 0.01;
  row.wd_mul = wd_mul;
  row.mantissa = true;
  return row;
}

optim::OptimizerConfig Optimizer() {
  optim::OptimizerConfig config;
  config.table = {Adam("lm_head", 1.0 / 320, kernels::DType::kF32),
                  Adam("embed", 0.3, kernels::DType::kBF16),
                  Adam("value_embed", 0.3, kernels::DType::kBF16),
                  Adam("scalars", 0.015, kernels::DType::kF32),
                  Muon("fc", 2),
                  Muon("proj", 2),
                  Muon("attn", 1)};
  config.grouping = optim::Grouping::kRoundRobin;
  config.grouping_ranks = 8;
  config.orthogonalizer = "newton_schulz_tuned";
  return config;
}

sched::Schedules Schedules() {
  sched::Schedules schedules;
  schedules.run = {.scheduled_steps = 6450, .extension_steps = 0};
  schedules.learning_rate.cooldown_fraction = 0.6;
  schedules.learning_rate.floor = 0;
  schedules.learning_rate.reaches_floor = true;
  schedules.window.block_tokens = 128;
  schedules.window.grow_to_tokens = 1728;
  schedules.rotary.head_dim = 128;
  schedules.rotary.base = 1024;
  schedules.rotary.attn_scale = 0.12;
  schedules.momentum = {.start = 0.85, .end = 0.95, .warmup_steps = 300};
  schedules.batch.stages = {{.fraction = 1.0, .tokens = 8 * kSlotTokens}};
  schedules.validation.every = 125;
  return schedules;
}

}  // namespace

absl::StatusOr<Recipe> Record7(int64_t vocab_size) {
  Recipe recipe;
  recipe.record = "record7";
  recipe.preset = "full";
  recipe.source = "modded-nanogpt, records/track_2_medium/2025-04-16_Record7";
  recipe.target_val_loss = 2.92;
  recipe.model = Model(vocab_size);
  recipe.data.mode = data::BatchMode::kStream;
  recipe.schedules = Schedules();
  recipe.optimizer = Optimizer();
  return recipe;
}

absl::StatusOr<Recipe> Record7Demo(int64_t vocab_size) {
  ABSL_ASSIGN_OR_RETURN(Recipe recipe, Record7(vocab_size));
  ABSL_ASSIGN_OR_RETURN(Recipe demo, DemoOf(std::move(recipe), 40));
  const int64_t slot_tokens = demo.schedules.batch.stages[0].tokens / demo.data.slots;
  for (optim::ParamRow& row : demo.optimizer.table) {
    row.eps *= static_cast<double>(slot_tokens) / kSlotTokens;
  }
  return demo;
}

}  // namespace tools
