// The param table of the record of 2025-10-27 ("FixMuonLR"). Its parameters are those of the
// record of 2025-09-23 but for the number of scalars.
#ifndef OPTIM_RECORD_B_H_
#define OPTIM_RECORD_B_H_

#include "optim/record_a.h"

namespace optim {

inline OptimizerConfig RecordBConfig() {
  OptimizerConfig config = RecordAConfig();
  config.orthogonalizer = "polar_express";
  for (ParamRow& row : config.table) {
    if (row.rule == Rule::kAdam) {
      row.beta1 = 0.65;
      row.every = 2;
      continue;
    }
    row.rule = Rule::kNorMuon;
    row.lr = 0.03;
    row.beta2 = 0.95;
    row.decay_times_lr = false;
    if (row.label == "mlp") row.named = {{.suffix = ".mlp.c_fc", .lr_mul = 2}};
    if (row.label == "smear_gate" || row.label == "attn_gate") {
      row.moment_dtype = kernels::DType::kBF16;
    }
  }
  return config;
}

}  // namespace optim

#endif  // OPTIM_RECORD_B_H_
