// The parameters and the param table of modded-nanogpt's mainline after pull request 360 (ANVIL2).
#ifndef OPTIM_RECORD_M_H_
#define OPTIM_RECORD_M_H_

#include <string>
#include <vector>

#include "kernels/parameter.h"
#include "optim/param_table.h"

namespace optim {

// Frozen: a layer without an MLP has a place in the bank.
constexpr int64_t kFrozenSlot = 7;

inline std::vector<kernels::ParameterSpec> RecordMSpecs() {
  using kernels::DType;
  const DType bf16 = DType::kBF16, f32 = DType::kF32;
  return {
      {"qk_bank", "qk_bank", {48, 256, 768}, bf16, 48, 256, 768},
      {"vo_bank", "vo_bank", {16, 768, 768}, bf16, 16, 768, 768},
      {"mlp_bank", "mlp_bank", {12, 2, 2816, 768}, bf16, 24, 2816, 768},
      {"lm_head", "lm_head", {768, 50304}, bf16, 1, 768, 50304},
      {"embed", "embed", {50304, 768}, bf16, 1, 50304, 768},
      {"value_embeds", "value_embeds", {201216, 768}, bf16, 1, 201216, 768},
      {"ve_gate_bank", "ve_gate_bank", {3, 6, 12}, bf16, 3, 6, 12},
      {"smear_gate", "smear_gate", {1, 12}, bf16, 1, 1, 12},
      {"scalars", "scalars", {24}, f32, 1, 1, 24},
  };
}

inline ParamRow RecordMAdam(const std::string& label, double lr_mul, double wd_mul, double beta1,
                            double beta2, Comms comms) {
  return {.label = label,
          .rule = Rule::kAdam,
          .lr = 0.008,
          .lr_mul = lr_mul,
          .weight_decay = 0.005,
          .wd_mul = wd_mul,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = 1e-10,
          .every = 2,
          .comms = comms,
          .cautious_decay = true};
}

inline ParamRow RecordMAnvil(const std::string& label) {
  return {
      .label = label,
      .rule = Rule::kAnvil,
      .lr = 0.023,
      .weight_decay = 2.25,
      .beta2 = 0.9,
      .aspect_of_view = true,
      .cautious_decay = true,
      .mantissa = true,
      .rails = {.slow_beta = 0.98, .fast_beta = 0.85, .fast_weight = 0.4385, .engaged_from = 514},
      .defer_gather = true};
}

// Without the parameters of what this repository's models lack.
inline OptimizerConfig RecordMConfig() {
  constexpr Comms kSharded = Comms::kSharded, kReplicated = Comms::kReplicated;
  OptimizerConfig config;
  config.grouping = Grouping::kByLabel;
  config.orthogonalizer = "anvil_cascade";
  config.flat_replicated = true;
  config.table = {RecordMAnvil("qk_bank"),
                  RecordMAnvil("vo_bank"),
                  RecordMAnvil("mlp_bank"),
                  RecordMAdam("value_embeds", 70, 5, 0.75, 0.95, kSharded),
                  RecordMAdam("lm_head", 1, 150, 0.5, 0.95, kSharded),
                  RecordMAdam("embed", 1, 150, 0.5, 0.95, kSharded),
                  RecordMAdam("scalars", 5, 0, 0.9, 0.99, kReplicated),
                  RecordMAdam("smear_gate", 0.01, 0, 0.9, 0.99, kReplicated),
                  RecordMAdam("ve_gate_bank", 1, 1, 0.9, 0.99, kReplicated)};
  for (int64_t slot = 0; slot < 12; ++slot) {
    const double factor = slot == kFrozenSlot ? 0 : 1;
    config.table[2].matrix_lr_mul.push_back(factor);      // c_fc
    config.table[2].matrix_lr_mul.push_back(2 * factor);  // c_proj
  }
  config.table[3].later = {.from_step = 336, .every = 4};
  config.table[5].tied_to = "lm_head";
  for (const ParamRow& row : config.table) config.scatter_order.push_back(row.label);
  config.work_order = {"qk_bank", "vo_bank",    "lm_head",      "embed",   "value_embeds",
                       "scalars", "smear_gate", "ve_gate_bank", "mlp_bank"};
  return config;
}

}  // namespace optim

#endif  // OPTIM_RECORD_M_H_
