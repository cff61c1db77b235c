#include "optim/param_table.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "optim/table_checks.h"
#include "third_party/absl_compat/check.h"

namespace optim {

using kernels::ParameterSpec;

const char* Name(Rule rule) {
  switch (rule) {
    case Rule::kAdam:
      return "adam";
    case Rule::kMuon:
      return "muon";
    case Rule::kNorMuon:
      return "normuon";
    case Rule::kAnvil:
      return "anvil";
  }
  return "?";
}

const char* Name(Comms comms) {
  switch (comms) {
    case Comms::kSharded:
      return "sharded";
    case Comms::kReplicated:
      return "replicated";
  }
  return "?";
}

const char* Name(Grouping grouping) {
  switch (grouping) {
    case Grouping::kCustomSizing:
      return "custom_sizing";
    case Grouping::kByShape:
      return "by_shape";
    case Grouping::kByLabel:
      return "by_label";
    case Grouping::kRoundRobin:
      return "round_robin";
  }
  return "?";
}

OptimizerConfig WithoutSparseRows(OptimizerConfig config) {
  for (ParamRow& row : config.table) row.sparse_rows = false;
  return config;
}

absl::StatusOr<std::vector<int>> RowsOfSpecs(const OptimizerConfig& config,
                                             const std::vector<ParameterSpec>& specs) {
  std::vector<int> rows;
  for (const ParameterSpec& spec : specs) {
    int found = -1;
    for (size_t row = 0; row < config.table.size(); ++row) {
      if (config.table[row].label != spec.label) continue;
      if (found >= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("param table: label ", spec.label, " has rows ", found, " and ", row));
      }
      found = static_cast<int>(row);
    }
    if (found < 0) {
      return absl::InvalidArgumentError(absl::StrCat("param table: no row for label \"", spec.label,
                                                     "\" of parameter ", spec.name));
    }
    const absl::Status checked = CheckRow(config.table[found], spec);
    if (!checked.ok()) return checked;
    rows.push_back(found);
  }
  const absl::Status checked = CheckTable(config, specs, rows);
  if (!checked.ok()) return checked;
  return rows;
}

ParamRow RowOf(const ParamRow& row, const ParameterSpec& spec) {
  ParamRow own = row;
  for (const NamedFactors& factors : row.named) {
    if (!EndsWith(spec.name, factors.suffix)) continue;
    own.lr_mul = factors.lr_mul;
    own.wd_mul = factors.wd_mul;
  }
  return own;
}

int64_t UpdatesIn(const ParamRow& row, int64_t steps) {
  const int64_t earlier = row.later.changes() ? std::min(steps, row.later.from_step) : steps;
  const int64_t updates = earlier / row.every;
  if (earlier == steps) return updates;
  return updates + steps / row.later.every - earlier / row.later.every;
}

ParamRow RowAt(const ParamRow& row, int64_t step) {
  ParamRow now = row;
  if (!IsLater(row.later, step)) return now;
  const double updates = static_cast<double>(row.later.every) / row.every;
  now.beta1 = std::pow(row.beta1, updates);
  now.beta2 = std::pow(row.beta2, updates);
  now.wd_mul = row.wd_mul * updates;
  return now;
}

std::vector<int64_t> SecondMomentShape(const ParameterSpec& spec, bool as_stored) {
  const int64_t rows = as_stored ? spec.shape[spec.shape.size() - 2] : spec.rows;
  const int64_t cols = as_stored ? spec.shape.back() : spec.cols;
  const int64_t matrices = spec.size() / (rows * cols);
  if (SecondMomentPerRow(spec)) return {matrices, rows, 1};
  return {matrices, 1, cols};
}

Rates AdamRates(const ParamRow& row, double lr_multiplier, int64_t t) {
  CHECK_GE(t, 1) << "Adam counts its updates from 1";
  const double lr = row.lr * lr_multiplier * row.lr_mul;
  const double n = static_cast<double>(t);
  const double decay = lr * row.weight_decay * row.wd_mul;
  const double root = std::sqrt(1 - std::pow(row.beta2, n));
  return {.step = lr * root / (1 - std::pow(row.beta1, n)),
          .decay = row.cautious_decay ? lr * decay : 1 - decay,
          .eps = row.eps_in_bias_correction ? row.eps * root : row.eps};
}

Rates MuonRates(const ParamRow& row, const ParameterSpec& spec, double lr_multiplier,
                int64_t matrix) {
  const size_t dims = spec.shape.size();
  CHECK_GE(dims, size_t{2}) << spec.name;
  CHECK(matrix >= 0 && matrix < spec.matrices) << spec.name << ": matrix " << matrix;
  const int64_t rows = row.aspect_of_view ? spec.rows : spec.shape[dims - 2];
  const int64_t cols = row.aspect_of_view ? spec.cols : spec.shape[dims - 1];
  const double aspect = static_cast<double>(rows) / static_cast<double>(cols);
  const std::vector<double>& factors = row.matrix_lr_mul;
  const double factor = factors.empty() ? 1.0 : factors[matrix % factors.size()];
  const double lr = row.lr * lr_multiplier;
  const double decay = (row.decay_times_lr ? lr : 1.0) * row.weight_decay * row.wd_mul;
  return {.step = lr * row.lr_mul * factor * std::sqrt(std::max(1.0, aspect)),
          .decay = row.cautious_decay ? decay : 1 - decay};
}

RailRates RailRatesAt(const Rails& rails, double momentum, int64_t step) {
  CHECK_GE(step, 0);
  if (step < rails.engaged_from) {
    return {.lookahead = momentum, .fast_beta = momentum, .fast_weight = 1};
  }
  return {.lookahead = momentum, .fast_beta = rails.fast_beta, .fast_weight = rails.fast_weight};
}

}  // namespace optim
