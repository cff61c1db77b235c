// What a recipe tells the optimizer: one row of numbers per label, and which variant of each
// part to use. Data only; nothing in this folder knows a record.
#ifndef OPTIM_PARAM_TABLE_H_
#define OPTIM_PARAM_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/parameter.h"

namespace optim {

enum class Rule : uint8_t { kAdam, kMuon };

// All parameters of one label.
struct ParamRow {
  std::string label;
  Rule rule = Rule::kAdam;
  double lr = 0;      // base rate; a step multiplies it by the schedule's lr_multiplier
  double lr_mul = 1;  // the label's own factor
  double weight_decay = 0;
  double wd_mul = 1;
  // kAdam only.
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  kernels::DType moment_dtype = kernels::DType::kF32;  // of m and v
};

enum class Grouping : uint8_t { kCustomSizing, kByShape, kByLabel };

const char* Name(Rule rule);
const char* Name(Grouping grouping);

struct OptimizerConfig {
  // The order matters: Adam's parameters are processed, and Muon's groups are formed, in the
  // order of the rows (within a label: in the order of the parameters).
  std::vector<ParamRow> table;
  Grouping grouping = Grouping::kCustomSizing;
  // Custom sizing derives its group sizes for this number of ranks and keeps them for all.
  int grouping_ranks = 8;
  std::string orthogonalizer = "newton_schulz";
};

// The row of each spec. InvalidArgument: a label without a row or with two, a rule that cannot
// serve the parameter (Muon on a weight that is not a matrix), a dtype other than f32 or bf16.
absl::StatusOr<std::vector<int>> RowsOfSpecs(const OptimizerConfig& config,
                                             const std::vector<kernels::ParameterSpec>& specs);

// The rates of a step for one parameter; `lr_multiplier` is the schedule's.
struct Rates {
  double step = 0;   // what the update direction is multiplied by
  double decay = 1;  // what the weight is multiplied by before
};

// Adam's update number t = 1, 2, ...:
//   step = lr lr_multiplier lr_mul sqrt(1 - beta2^t) / (1 - beta1^t)
// The epsilon stays outside of the bias correction (see kernels/ops/optimizer.h).
Rates AdamRates(const ParamRow& row, double lr_multiplier, int64_t t);

// step = lr lr_multiplier lr_mul sqrt(max(1, rows / cols)), with rows and cols of the shape as
// stored, not as the optimizer views it. The decay goes without lr_mul.
Rates MuonRates(const ParamRow& row, const kernels::ParameterSpec& spec, double lr_multiplier);

}  // namespace optim

#endif  // OPTIM_PARAM_TABLE_H_
