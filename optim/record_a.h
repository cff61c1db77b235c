// The parameters and the param table of the record of 2025-09-23 ("Muon Custom Sizing").
#ifndef OPTIM_RECORD_A_H_
#define OPTIM_RECORD_A_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/parameter.h"
#include "optim/param_table.h"

namespace optim {

inline std::vector<kernels::ParameterSpec> RecordASpecs() {
  using kernels::DType;
  std::vector<kernels::ParameterSpec> specs;
  const auto add = [&](const std::string& name, const std::string& label,
                       std::vector<int64_t> shape, DType dtype, int64_t matrices, int64_t rows,
                       int64_t cols) {
    specs.push_back({name, label, std::move(shape), dtype, matrices, rows, cols});
  };
  add("scalars", "scalars", {72}, DType::kF32, 1, 1, 72);
  add("embed.weight", "embed", {50304, 768}, DType::kBF16, 1, 50304, 768);
  add("smear_gate.weight", "smear_gate", {1, 12}, DType::kBF16, 1, 1, 12);
  for (int i = 0; i < 3; ++i) {
    add(absl::StrCat("value_embeds.", i, ".weight"), "value_embed", {50304, 768}, DType::kBF16, 1,
        50304, 768);
  }
  for (int i = 1; i <= 11; ++i) {
    const std::string block = absl::StrCat("blocks.", i);
    if (i != 7) {
      add(block + ".attn.qkvo_w", "attn", {768, 3072}, DType::kF32, 4, 768, 768);
      add(block + ".attn.attn_gate.weight", "attn_gate", {6, 12}, DType::kBF16, 1, 6, 12);
    }
    add(block + ".mlp.c_fc", "mlp", {768, 3072}, DType::kF32, 1, 768, 3072);
    add(block + ".mlp.c_proj", "mlp", {768, 3072}, DType::kF32, 1, 768, 3072);
  }
  add("lm_head.weight", "lm_head", {50304, 768}, DType::kBF16, 1, 50304, 768);
  return specs;
}

inline ParamRow RecordAAdam(const std::string& label, double lr_mul) {
  return {.label = label,
          .rule = Rule::kAdam,
          .lr = 0.008,
          .lr_mul = lr_mul,
          .beta1 = 0.8,
          .beta2 = 0.95,
          .eps = 1e-8,
          .moment_dtype = kernels::DType::kBF16};
}

inline OptimizerConfig RecordAConfig() {
  OptimizerConfig config;
  config.table = {RecordAAdam("scalars", 5), RecordAAdam("lm_head", 1), RecordAAdam("embed", 75),
                  RecordAAdam("value_embed", 75)};
  for (const char* label : {"smear_gate", "attn_gate", "attn", "mlp"}) {
    config.table.push_back({.label = label, .rule = Rule::kMuon, .lr = 0.05});
  }
  return config;
}

}  // namespace optim

#endif  // OPTIM_RECORD_A_H_
