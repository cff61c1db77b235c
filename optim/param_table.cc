#include "optim/param_table.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;

absl::Status CheckRow(const ParamRow& row, const ParameterSpec& spec) {
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", spec.name, ": dtype ",
                                                   kernels::Name(spec.dtype),
                                                   ", but weights are f32 or bf16"));
  }
  if (row.rule != Rule::kAdam && spec.shape.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", spec.name, ": has ", spec.shape.size(), " dims; ",
                     Name(row.rule), " updates matrices, give label ", spec.label, " to adam"));
  }
  int64_t stored = 1;
  for (int64_t dim : spec.shape) stored *= dim;
  if (stored != spec.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", spec.name, ": its shape holds ", stored, " elements, its view as ",
        spec.matrices, " x ", spec.rows, " x ", spec.cols, " holds ", spec.size()));
  }
  return absl::OkStatus();
}

bool EndsWith(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// Of the row's parameters, if it has any: each suffix fits some, and none is fitted by two.
absl::Status CheckFactors(const ParamRow& row, int index, const std::vector<ParameterSpec>& specs,
                          const std::vector<int>& rows) {
  if (row.every < 1 || (row.every > 1 && row.rule != Rule::kAdam)) {
    return absl::InvalidArgumentError(absl::StrCat("param table: label ", row.label, ": every is ",
                                                   row.every, "; 1, or for adam more, is needed"));
  }
  if (std::find(rows.begin(), rows.end(), index) == rows.end()) return absl::OkStatus();
  std::vector<const NamedFactors*> factors_of(specs.size());
  for (const NamedFactors& factors : row.named) {
    bool fits = false;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (rows[i] != index || !EndsWith(specs[i].name, factors.suffix)) continue;
      if (factors_of[i] != nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("param table: label ", row.label, ": both \"", factors_of[i]->suffix,
                         "\" and \"", factors.suffix, "\" fit ", specs[i].name));
      }
      factors_of[i] = &factors;
      fits = true;
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("param table: label ", row.label,
                                                     ": no parameter's name ends in \"",
                                                     factors.suffix, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(Rule rule) {
  switch (rule) {
    case Rule::kAdam:
      return "adam";
    case Rule::kMuon:
      return "muon";
    case Rule::kNorMuon:
      return "normuon";
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
  }
  return "?";
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
  for (size_t row = 0; row < config.table.size(); ++row) {
    const absl::Status checked =
        CheckFactors(config.table[row], static_cast<int>(row), specs, rows);
    if (!checked.ok()) return checked;
  }
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

std::vector<int64_t> SecondMomentShape(const ParameterSpec& spec) {
  if (SecondMomentPerRow(spec)) return {spec.matrices, spec.rows, 1};
  return {spec.matrices, 1, spec.cols};
}

Rates AdamRates(const ParamRow& row, double lr_multiplier, int64_t t) {
  CHECK_GE(t, 1) << "Adam counts its updates from 1";
  const double lr = row.lr * lr_multiplier * row.lr_mul;
  const double n = static_cast<double>(t);
  return {.step = lr * std::sqrt(1 - std::pow(row.beta2, n)) / (1 - std::pow(row.beta1, n)),
          .decay = 1 - lr * row.weight_decay * row.wd_mul};
}

Rates MuonRates(const ParamRow& row, const ParameterSpec& spec, double lr_multiplier) {
  const size_t dims = spec.shape.size();
  CHECK_GE(dims, size_t{2}) << spec.name;
  const double aspect =
      static_cast<double>(spec.shape[dims - 2]) / static_cast<double>(spec.shape[dims - 1]);
  const double lr = row.lr * lr_multiplier;
  return {.step = lr * row.lr_mul * std::sqrt(std::max(1.0, aspect)),
          .decay = 1 - (row.decay_times_lr ? lr : 1.0) * row.weight_decay * row.wd_mul};
}

}  // namespace optim
