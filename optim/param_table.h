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

// kNorMuon is Muon whose update is divided, after the orthogonalisation, by the root of a second
// moment per neuron (Li et al., "NorMuon", 2025).
enum class Rule : uint8_t { kAdam, kMuon, kNorMuon };

// The factors of those parameters of a row whose names end like this, such as ".mlp.c_fc".
struct NamedFactors {
  std::string suffix;
  double lr_mul = 1;
  double wd_mul = 1;
};

// All parameters of one label.
struct ParamRow {
  std::string label;
  Rule rule = Rule::kAdam;
  double lr = 0;      // base rate; a step multiplies it by the schedule's lr_multiplier
  double lr_mul = 1;  // the label's own factor
  double weight_decay = 0;
  double wd_mul = 1;
  // kAdam: beta1, and eps outside of the bias correction.
  double beta1 = 0;
  // kAdam and kNorMuon: how slowly the second moment forgets.
  double beta2 = 0;
  double eps = 0;
  // Of kAdam's moments and kNorMuon's second moment.
  kernels::DType moment_dtype = kernels::DType::kF32;
  // Instead of lr_mul and wd_mul, for some of the parameters.
  std::vector<NamedFactors> named = {};
  // kMuon and kNorMuon: a step's decay is lr * weight_decay * wd_mul, or, if false, without lr.
  bool decay_times_lr = true;
  // kAdam: an update in each step s with (s + 1) % every == 0, with the sum of the gradients of
  // `every` steps. 2 is every odd s.
  int every = 1;
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
// serve the parameter (Muon on a weight that is not a matrix), a dtype other than f32 or bf16, a
// suffix that fits no parameter of its row, or two that fit one, `every` below 1 or beside Muon.
absl::StatusOr<std::vector<int>> RowsOfSpecs(const OptimizerConfig& config,
                                             const std::vector<kernels::ParameterSpec>& specs);

// `row` with lr_mul and wd_mul as they are for this parameter.
ParamRow RowOf(const ParamRow& row, const kernels::ParameterSpec& spec);

// Whether the row's parameters are updated in step `step`.
inline bool IsDue(const ParamRow& row, int64_t step) { return (step + 1) % row.every == 0; }

// The second moment of kNorMuon: one value for each column (the mean over the rows) of each matrix
// of the view, or, if the shape as stored has no fewer rows than columns, one for each row.
inline bool SecondMomentPerRow(const kernels::ParameterSpec& spec) {
  return spec.shape[spec.shape.size() - 2] >= spec.shape.back();
}
// [matrices, 1, cols] or [matrices, rows, 1].
std::vector<int64_t> SecondMomentShape(const kernels::ParameterSpec& spec);

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
// stored, not as the optimizer views it. The decay goes without lr_mul, and without lr at all
// unless decay_times_lr. `row` is RowOf the parameter.
Rates MuonRates(const ParamRow& row, const kernels::ParameterSpec& spec, double lr_multiplier);

}  // namespace optim

#endif  // OPTIM_PARAM_TABLE_H_
