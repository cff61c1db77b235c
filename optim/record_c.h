// The parameters and the param table of the record of 2026-01-18 ("Unified Optimizers").
#ifndef OPTIM_RECORD_C_H_
#define OPTIM_RECORD_C_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/parameter.h"
#include "optim/param_table.h"

namespace optim {

// The banks: ten layers with attention, and twelve slots of MLPs of which the last is padding.
inline std::vector<kernels::ParameterSpec> RecordCSpecs() {
  using kernels::DType;
  std::vector<kernels::ParameterSpec> specs = {
      {"attn_bank", "attn", {10, 3072, 768}, DType::kBF16, 40, 768, 768},
      {"mlp_bank", "mlp", {12, 2, 3072, 768}, DType::kBF16, 24, 3072, 768},
      {"scalars", "scalars", {40}, DType::kF32, 1, 1, 40},
  };
  for (int i = 0; i < 3; ++i) {
    specs.push_back({absl::StrCat("value_embeds.", i, ".weight"),
                     absl::StrCat("ve", i),
                     {50304, 768},
                     DType::kBF16,
                     1,
                     50304,
                     768});
  }
  specs.push_back({"smear_gate.weight", "smear_gate", {1, 12}, DType::kBF16, 1, 1, 12});
  specs.push_back({"skip_gate.weight", "skip_gate", {1, 12}, DType::kBF16, 1, 1, 12});
  specs.push_back({"attn_gate_bank", "attn_gate_bank", {10, 6, 12}, DType::kBF16, 10, 6, 12});
  specs.push_back({"ve_gate_bank", "ve_gate_bank", {5, 6, 12}, DType::kBF16, 5, 6, 12});
  specs.push_back({"x0_lambdas", "x0_lambdas", {11}, DType::kF32, 1, 1, 11});
  specs.push_back({"lm_head.weight", "lm_head", {768, 50304}, DType::kBF16, 1, 768, 50304});
  specs.push_back({"embed.weight", "embed", {50304, 768}, DType::kBF16, 1, 50304, 768});
  return specs;
}

inline ParamRow RecordCAdam(const std::string& label, double lr_mul, double wd_mul, double beta1,
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

inline ParamRow RecordCNorMuon(const std::string& label) {
  return {.label = label,
          .rule = Rule::kNorMuon,
          .lr = 0.023,
          .weight_decay = 1.2,
          .beta2 = 0.95,
          .aspect_of_view = true,
          .cautious_decay = true,
          .mantissa = true};
}

inline OptimizerConfig RecordCConfig() {
  constexpr Comms kSharded = Comms::kSharded, kReplicated = Comms::kReplicated;
  OptimizerConfig config;
  config.grouping = Grouping::kByLabel;
  config.orthogonalizer = "polar_express";
  config.table = {RecordCNorMuon("attn"),
                  RecordCNorMuon("mlp"),
                  RecordCAdam("scalars", 5, 0, 0.9, 0.99, kReplicated),
                  RecordCAdam("ve0", 75, 5, 0.75, 0.95, kSharded),
                  RecordCAdam("ve1", 75, 5, 0.75, 0.95, kSharded),
                  RecordCAdam("ve2", 75, 5, 0.75, 0.95, kSharded),
                  RecordCAdam("smear_gate", 0.01, 0, 0.9, 0.99, kReplicated),
                  RecordCAdam("skip_gate", 0.05, 0, 0.9, 0.99, kReplicated),
                  RecordCAdam("attn_gate_bank", 1, 1, 0.9, 0.99, kReplicated),
                  RecordCAdam("ve_gate_bank", 1, 1, 0.9, 0.99, kReplicated),
                  RecordCAdam("x0_lambdas", 5, 0, 0.65, 0.95, kReplicated),
                  RecordCAdam("lm_head", 1, 150, 0.5, 0.95, kSharded),
                  RecordCAdam("embed", 1, 150, 0.5, 0.95, kSharded)};
  config.table[1].matrix_lr_mul = {1, 2};  // c_fc, c_proj
  config.table.back().tied_to = "lm_head";
  for (const ParamRow& row : config.table) config.scatter_order.push_back(row.label);
  config.work_order = {
      "scalars", "smear_gate", "skip_gate", "attn_gate_bank", "ve_gate_bank", "x0_lambdas", "ve0",
      "ve1",     "ve2",        "lm_head",   "embed",          "attn",         "mlp"};
  return config;
}

}  // namespace optim

#endif  // OPTIM_RECORD_C_H_
