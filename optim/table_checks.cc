#include "optim/table_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::ParameterSpec;

namespace {

absl::Status BadRow(const ParamRow& row, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("param table: label ", row.label, ": ", what));
}

bool IsBeta(double value) { return value >= 0 && value < 1; }  // false for NaN

absl::Status CheckRails(const ParamRow& row) {
  const Rails& rails = row.rails;
  if (row.rule != Rule::kAnvil) {
    return rails == Rails{} ? absl::OkStatus() : BadRow(row, "rails are for anvil");
  }
  if (!row.mantissa || !row.cautious_decay) {
    return BadRow(row, "anvil needs a mantissa and cautious_decay");
  }
  if (!IsBeta(rails.slow_beta) || !IsBeta(rails.fast_beta) ||
      !(rails.fast_weight >= 0 && rails.fast_weight <= 1) || rails.engaged_from < 0) {
    return BadRow(row, absl::StrCat("rails have slow_beta ", rails.slow_beta, ", fast_beta ",
                                    rails.fast_beta, ", fast_weight ", rails.fast_weight,
                                    " and engaged_from ", rails.engaged_from,
                                    "; betas must lie in [0, 1), the weight in [0, 1], the step at "
                                    "0 or above"));
  }
  return absl::OkStatus();
}

absl::Status CheckLater(const ParamRow& row) {
  const LaterCadence& later = row.later;
  if (later == LaterCadence{}) return absl::OkStatus();
  if (row.rule != Rule::kAdam) return BadRow(row, "a later cadence is for adam");
  if (later.every <= row.every || later.every % row.every != 0 || later.from_step < 0) {
    return BadRow(row, absl::StrCat("later cadence has from_step ", later.from_step, " and every ",
                                    later.every, "; the step must be 0 or above, every a multiple ",
                                    "of the earlier ", row.every, " and more"));
  }
  return absl::OkStatus();
}

// Fields that go together.
absl::Status CheckFields(const ParamRow& row) {
  const bool adam = row.rule == Rule::kAdam;
  if (row.every < 1 || (row.every > 1 && !adam)) {
    return BadRow(row, absl::StrCat("every is ", row.every, "; 1, or for adam more, is needed"));
  }
  ABSL_RETURN_IF_ERROR(CheckLater(row));
  if (adam && (row.aspect_of_view || !row.matrix_lr_mul.empty())) {
    return BadRow(row, "aspect_of_view and matrix_lr_mul are not for adam");
  }
  if (row.second_moment_as_stored && (adam || row.rule == Rule::kMuon)) {
    return BadRow(row, absl::StrCat("second_moment_as_stored is not for ", Name(row.rule)));
  }
  if (!(row.second_moment_floor > 0)) {
    return BadRow(row, absl::StrCat("second_moment_floor is ", row.second_moment_floor,
                                    "; it must be positive"));
  }
  if (!adam && row.eps_in_bias_correction) {
    return BadRow(row, "eps_in_bias_correction is for adam");
  }
  if (!adam && row.cautious_decay && !row.mantissa) {
    return BadRow(row, "cautious_decay needs a mantissa: no other update of matrices has it");
  }
  if (!adam && row.cautious_decay && !row.decay_times_lr) {
    return BadRow(row, "cautious_decay needs decay_times_lr");
  }
  if (row.defer_gather && row.comms != Comms::kSharded) {
    return BadRow(row, "defer_gather, but replicated parameters have no gather");
  }
  return CheckRails(row);
}

// Of the row's parameters, if it has any: each suffix fits some, and none is fitted by two.
absl::Status CheckFactors(const ParamRow& row, int index, const std::vector<ParameterSpec>& specs,
                          const std::vector<int>& rows) {
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

// The label's one parameter, null if it has none.
absl::StatusOr<const ParameterSpec*> OnlyParameter(const ParamRow& row,
                                                   const std::vector<ParameterSpec>& specs) {
  const ParameterSpec* only = nullptr;
  for (const ParameterSpec& spec : specs) {
    if (spec.label != row.label) continue;
    if (only != nullptr) {
      return BadRow(row, absl::StrCat("one of a tied pair has one parameter, but there are ",
                                      only->name, " and ", spec.name));
    }
    only = &spec;
  }
  return only;
}

absl::Status CheckPair(const ParamRow& row, const ParamRow& target,
                       const std::vector<ParameterSpec>& specs) {
  if (row.rule != Rule::kAdam || target.rule != Rule::kAdam) {
    return BadRow(row,
                  absl::StrCat("tied to ", target.label, ", but adam is not the rule of both"));
  }
  if (row.mantissa || target.mantissa) {
    return BadRow(row, absl::StrCat("tied to ", target.label, ", but one has a mantissa"));
  }
  if (!target.tied_to.empty()) {
    return BadRow(row, absl::StrCat("tied to ", target.label, ", which is tied itself"));
  }
  if (row.later != target.later) {
    return BadRow(
        row, absl::StrCat("tied to ", target.label, ", but their later cadences are not the same"));
  }
  if (row.defer_gather || target.defer_gather) {
    return BadRow(row, absl::StrCat("tied to ", target.label,
                                    ", and one of them has defer_gather, but the copy from one to "
                                    "the other needs the gather within the step"));
  }
  if (row.every != target.every || row.comms != target.comms ||
      row.moment_dtype != target.moment_dtype) {
    return BadRow(row, absl::StrCat("tied to ", target.label,
                                    ", but every, comms or moment_dtype are not the same: ",
                                    row.every, ", ", Name(row.comms), ", ",
                                    kernels::Name(row.moment_dtype), " beside ", target.every, ", ",
                                    Name(target.comms), ", ", kernels::Name(target.moment_dtype)));
  }
  ABSL_ASSIGN_OR_RETURN(const ParameterSpec* spec, OnlyParameter(row, specs));
  ABSL_ASSIGN_OR_RETURN(const ParameterSpec* other, OnlyParameter(target, specs));
  if (spec == nullptr && other == nullptr) return absl::OkStatus();  // rows that nobody uses
  if (spec == nullptr || other == nullptr) {
    return BadRow(row,
                  absl::StrCat("tied to ", target.label, ", but ",
                               spec == nullptr ? row.label : target.label, " has no parameter"));
  }
  if (spec->shape.size() != 2 || spec->dtype != other->dtype ||
      other->shape != std::vector<int64_t>{spec->shape[1], spec->shape[0]}) {
    return BadRow(
        row, absl::StrCat("tied to ", target.label, ", but ", spec->name, " ",
                          kernels::Name(spec->dtype), " [", absl::StrJoin(spec->shape, ", "),
                          "] is no transpose of ", other->name, " ", kernels::Name(other->dtype),
                          " [", absl::StrJoin(other->shape, ", "), "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckSparse(const OptimizerConfig& config, const std::vector<ParameterSpec>& specs,
                         const std::vector<int>& rows) {
  const ParamRow* first_row = nullptr;
  const ParameterSpec* first = nullptr;
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamRow& row = config.table[rows[i]];
    if (!row.sparse_rows) continue;
    const bool target =
        std::any_of(config.table.begin(), config.table.end(),
                    [&](const ParamRow& other) { return other.tied_to == row.label; });
    if (row.rule != Rule::kAdam || row.comms != Comms::kSharded || !row.tied_to.empty() || target ||
        specs[i].shape.size() != 2) {
      return BadRow(row, absl::StrCat("sparse_rows are for adam's sharded tables [V, D] that are "
                                      "not tied; ",
                                      specs[i].name, " [", absl::StrJoin(specs[i].shape, ", "),
                                      "] is ", Name(row.rule), "'s, ", Name(row.comms),
                                      target || !row.tied_to.empty() ? ", tied" : ""));
    }
    if (row.defer_gather) return BadRow(row, "sparse_rows and defer_gather do not go together");
    if (first == nullptr) {
      first = &specs[i];
      first_row = &row;
    }
    if (specs[i].shape[0] != first->shape[0] || row.every != first_row->every ||
        row.later != first_row->later) {
      return BadRow(
          row, absl::StrCat("sparse_rows need one number of rows and one cadence; ", specs[i].name,
                            " has ", specs[i].shape[0], " every ", row.every, " steps, ",
                            first->name, " ", first->shape[0], " every ", first_row->every));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTied(const OptimizerConfig& config, const std::vector<ParameterSpec>& specs) {
  const ParamRow* tied = nullptr;
  for (const ParamRow& row : config.table) {
    if (row.tied_to.empty()) continue;
    if (tied != nullptr)
      return BadRow(row, absl::StrCat("tied like ", tied->label, "; one may be"));
    tied = &row;
    const auto target = std::find_if(config.table.begin(), config.table.end(),
                                     [&](const ParamRow& r) { return r.label == row.tied_to; });
    if (target == config.table.end()) {
      return BadRow(row, absl::StrCat("tied to ", row.tied_to, ", which has no row"));
    }
    ABSL_RETURN_IF_ERROR(CheckPair(row, *target, specs));
  }
  return absl::OkStatus();
}

// Every label of the table once, and nothing else.
absl::Status CheckOrder(const char* name, const std::vector<std::string>& order,
                        const std::vector<ParamRow>& table) {
  for (const ParamRow& row : table) {
    const int64_t times = std::count(order.begin(), order.end(), row.label);
    if (times == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: ", name, " has label ", row.label, " ", times,
                     " times, not once: ", absl::StrJoin(order, ", ")));
  }
  for (const std::string& label : order) {
    if (std::any_of(table.begin(), table.end(), [&](auto& row) { return row.label == label; })) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: ", name, " has \"", label, "\", which is no label of the table"));
  }
  return absl::OkStatus();
}

}  // namespace

bool EndsWith(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

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
  if (row.mantissa && spec.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", spec.name, ": dtype ",
                                                   kernels::Name(spec.dtype),
                                                   ", but a mantissa belongs to bf16 weights"));
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

absl::Status CheckTable(const OptimizerConfig& config, const std::vector<ParameterSpec>& specs,
                        const std::vector<int>& rows) {
  for (size_t row = 0; row < config.table.size(); ++row) {
    ABSL_RETURN_IF_ERROR(CheckFields(config.table[row]));
    ABSL_RETURN_IF_ERROR(CheckFactors(config.table[row], static_cast<int>(row), specs, rows));
  }
  ABSL_RETURN_IF_ERROR(CheckTied(config, specs));
  ABSL_RETURN_IF_ERROR(CheckSparse(config, specs, rows));
  if (config.scatter_order.empty() && config.work_order.empty()) {
    for (const ParamRow& row : config.table) {
      if (row.defer_gather) return BadRow(row, "defer_gather needs scatter_order and work_order");
    }
    return absl::OkStatus();
  }
  ABSL_RETURN_IF_ERROR(CheckOrder("scatter_order", config.scatter_order, config.table));
  return CheckOrder("work_order", config.work_order, config.table);
}

}  // namespace optim
