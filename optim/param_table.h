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
// moment per neuron (Li et al., "NorMuon", 2025). kAnvil is NorMuon with momentum on two rails, the
// slow one of which decides where weights decay (modded-nanogpt's mainline of 2026).
enum class Rule : uint8_t { kAdam, kMuon, kNorMuon, kAnvil };

// How a label's parameters are shared. kSharded: reduce-scatter, an update of this rank's chunk,
// all-gather. kReplicated: all-reduce of the gradient, then every rank updates all of it; for what
// is so small that the gather would cost more than the update.
enum class Comms : uint8_t { kSharded, kReplicated };

// The factors of those parameters of a row whose names end like this, such as ".mlp.c_fc".
struct NamedFactors {
  std::string suffix;
  double lr_mul = 1;
  double wd_mul = 1;
};

// kAnvil's momentum, kernels::TwinRailUpdate. The slow rail gathers from the first step on. Before
// step engaged_from the update is the fast rail's alone, whose beta is StepRates::momentum; from
// then on that is only the lookahead, the fast rail has fast_beta, and fast_weight in the blend.
struct Rails {
  double slow_beta = 0;
  double fast_beta = 0;
  double fast_weight = 1;
  int64_t engaged_from = 0;

  bool operator==(const Rails&) const = default;
};

// A row's cadence from step from_step on: `every` instead of ParamRow::every, of which it is a
// multiple. One update then stands for every / ParamRow::every of the earlier ones: its betas are
// theirs to that power, its decay so many times theirs. Gradients that wait at from_step wait on
// for the first update of the later cadence.
struct LaterCadence {
  int64_t from_step = 0;
  int every = 0;  // 0: the cadence does not change

  bool changes() const { return every > 0; }
  bool operator==(const LaterCadence&) const = default;
};

// All parameters of one label.
struct ParamRow {
  std::string label;
  Rule rule = Rule::kAdam;
  double lr = 0;      // base rate; a step multiplies it by the schedule's lr_multiplier
  double lr_mul = 1;  // the label's own factor; kAdam: 0 freezes weight and moments
  double weight_decay = 0;
  double wd_mul = 1;
  // kAdam: beta1 and eps, which is outside of the bias correction unless eps_in_bias_correction.
  double beta1 = 0;
  // kAdam, kNorMuon and kAnvil: how slowly the second moment forgets.
  double beta2 = 0;
  double eps = 0;
  // Of kAdam's moments and kNorMuon's and kAnvil's second moment.
  kernels::DType moment_dtype = kernels::DType::kF32;
  // Instead of lr_mul and wd_mul, for some of the parameters.
  std::vector<NamedFactors> named = {};
  // Matrices: a step's decay is lr * weight_decay * wd_mul, or, if false, without lr.
  bool decay_times_lr = true;
  // kAdam: an update in each step s with (s + 1) % every == 0, with the sum of the gradients of
  // `every` steps. 2 is every odd s.
  int every = 1;
  Comms comms = Comms::kSharded;
  // Matrices: the factor of matrix i of a parameter's view is matrix_lr_mul[i % size]; none: 1. A
  // bank that alternates c_fc and c_proj has {1, 2} if c_proj learns twice as fast. With
  // cautious_decay, a matrix with factor 0 is frozen: it keeps its bits.
  std::vector<double> matrix_lr_mul = {};
  // Matrices: sqrt(max(1, rows / cols)) is that of one matrix of the view, not that of
  // the shape as stored.
  bool aspect_of_view = false;
  // Decay only where the update makes the weight smaller (Chen et al., 2025). kAdam:
  // AdamArgs::cautious. Matrices: SplitMatrixArgs::cautious, which needs `mantissa` too. kAnvil
  // needs both, and its slow rail is SplitMatrixArgs::gate.
  bool cautious_decay = false;
  // kNorMuon and kAnvil: second moment and kept norm are those of the matrices as stored instead of
  // the view's, which only the orthogonalisation then has.
  bool second_moment_as_stored = false;
  double second_moment_floor = 1e-10;  // SecondMomentArgs::floor
  // bf16 weights: the lower 16 bits of f32 weights are kept beside them, and the gradient is
  // rounded to bf16. Matrices: the momentum is then f32.
  bool mantissa = false;
  // The label, with one parameter [D, V], of which this label's one parameter [V, D] is the
  // transpose while StepRates::tied. Both kAdam, with the same `every`, `later`, `comms` and
  // dtypes.
  std::string tied_to = {};
  // kAdam: eps is added to the corrected root of the second moment, as in torch.optim.AdamW.
  bool eps_in_bias_correction = false;
  Rails rails = {};         // kAnvil
  LaterCadence later = {};  // kAdam
  // kSharded, in a step of three phases, neither end of a tied pair: the step launches the gathers
  // of the new weights and leaves them in flight, for ShardedOptimizer::FinishGathers.
  bool defer_gather = false;
  // kAdam, sharded, parameters [V, D] of which a rank reads the rows of its tokens: only such rows
  // are exchanged, see sparse_rows.h. All such rows of a table have one V and one cadence.
  bool sparse_rows = false;
};

enum class Grouping : uint8_t { kCustomSizing, kByShape, kByLabel, kRoundRobin };

const char* Name(Rule rule);
const char* Name(Comms comms);
const char* Name(Grouping grouping);

struct OptimizerConfig {
  // The order matters: Adam's parameters are processed, and Muon's groups are formed, in the
  // order of the rows (within a label: in the order of the parameters).
  std::vector<ParamRow> table;
  Grouping grouping = Grouping::kByLabel;
  // Custom sizing derives its group sizes for this number of ranks and keeps them for all. Round
  // robin: the members of a group.
  int grouping_ranks = 1;
  std::string orthogonalizer = {};  // a name of MakeOrthogonalizer; not read without matrices
  // Both empty: the step of two parts, Adam's reductions, updates and gathers, then the matrices'.
  // Otherwise the step of three phases, over all rules: reductions are launched in scatter_order;
  // in work_order each label's is waited for, its parameters are updated and their gathers
  // launched; the gathers are finished in that order too, those of labels with defer_gather behind
  // the others. Each holds every label of the table once.
  std::vector<std::string> scatter_order = {};
  std::vector<std::string> work_order = {};
  // Of replicated Adam, those that are due in the same steps and have the same dtype share memory:
  // one all-reduce, before everything else, and one update for all of them, whose rates differ.
  bool flat_replicated = false;
};

// `config` with all exchanges of whole buffers.
OptimizerConfig WithoutSparseRows(OptimizerConfig config);

// The row of each spec. InvalidArgument: a label without a row or with two, a rule that cannot
// serve the parameter (Muon on a weight that is not a matrix), a dtype other than f32 or bf16, a
// suffix that fits no parameter of its row, or two that fit one, `every` below 1 or beside Muon,
// fields that do not go together, an order that is no permutation of the table's labels.
absl::StatusOr<std::vector<int>> RowsOfSpecs(const OptimizerConfig& config,
                                             const std::vector<kernels::ParameterSpec>& specs);

// `row` with lr_mul and wd_mul as they are for this parameter.
ParamRow RowOf(const ParamRow& row, const kernels::ParameterSpec& spec);

inline bool IsLater(const LaterCadence& later, int64_t step) {
  return later.changes() && step >= later.from_step;
}
inline int EveryAt(int every, const LaterCadence& later, int64_t step) {
  return IsLater(later, step) ? later.every : every;
}

// Whether the row's parameters are updated in step `step`.
inline bool IsDue(const ParamRow& row, int64_t step) {
  return (step + 1) % EveryAt(row.every, row.later, step) == 0;
}

// The updates of the first `steps` steps.
int64_t UpdatesIn(const ParamRow& row, int64_t steps);

// Which update, from 1, the one of step `step` is in a run whose first step was `first`: the steps
// that were due. The same for both of a tied pair, whether or not they were updated apart.
inline int64_t UpdateNumber(const ParamRow& row, int64_t step, int64_t first) {
  return UpdatesIn(row, step + 1) - UpdatesIn(row, first);
}

// `row` with betas and wd_mul as they are in step `step`.
ParamRow RowAt(const ParamRow& row, int64_t step);

// The second moment of kNorMuon and kAnvil: one value for each column (the mean over the rows) of
// each matrix of the view (or as stored: ParamRow::second_moment_as_stored), or, if the shape as
// stored has no fewer rows than columns, one for each row.
inline bool SecondMomentPerRow(const kernels::ParameterSpec& spec) {
  return spec.shape[spec.shape.size() - 2] >= spec.shape.back();
}
// [matrices, 1, cols] or [matrices, rows, 1].
std::vector<int64_t> SecondMomentShape(const kernels::ParameterSpec& spec, bool as_stored = false);

// The rates of a step for one parameter; `lr_multiplier` is the schedule's.
struct Rates {
  double step = 0;   // what the update direction is multiplied by
  double decay = 1;  // what the weight is multiplied by before
  double eps = 0;    // kAdam
};

// Adam's update number t = 1, 2, ...:
//   step = lr sqrt(1 - beta2^t) / (1 - beta1^t),  lr = row.lr lr_multiplier lr_mul
//   decay = 1 - lr weight_decay wd_mul, or, if cautious_decay, lr^2 weight_decay wd_mul
//   eps = row.eps, or, if eps_in_bias_correction, row.eps sqrt(1 - beta2^t)
// See AdamArgs in kernels/ops/optimizer.h.
Rates AdamRates(const ParamRow& row, double lr_multiplier, int64_t t);

// step = lr lr_multiplier lr_mul matrix_lr_mul sqrt(max(1, rows / cols)), with rows and cols of the
// shape as stored or, if aspect_of_view, of a matrix of the view. The decay goes without lr_mul,
// and without lr at all unless decay_times_lr:
//   decay = 1 - lr lr_multiplier weight_decay wd_mul
// With cautious_decay it is what SplitMatrixUpdate multiplies by step, without the 1 - .
// `row` is RowOf the parameter, `matrix` one of its view.
Rates MuonRates(const ParamRow& row, const kernels::ParameterSpec& spec, double lr_multiplier,
                int64_t matrix = 0);

// What TwinRailUpdate reads in step `step`, `momentum` being the schedule's.
struct RailRates {
  double lookahead = 0;
  double fast_beta = 0;
  double fast_weight = 1;
};
RailRates RailRatesAt(const Rails& rails, double momentum, int64_t step);

}  // namespace optim

#endif  // OPTIM_PARAM_TABLE_H_
