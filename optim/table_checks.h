// What a param table may say: the checks behind RowsOfSpecs.
#ifndef OPTIM_TABLE_CHECKS_H_
#define OPTIM_TABLE_CHECKS_H_

#include <vector>

#include "absl/status/status.h"
#include "kernels/parameter.h"
#include "optim/param_table.h"

namespace optim {

// Whether a parameter's name ends like this.
bool EndsWith(const std::string& name, const std::string& suffix);

// Whether the row can serve this parameter.
absl::Status CheckRow(const ParamRow& row, const kernels::ParameterSpec& spec);

// Of the whole table, `rows` being the row of each spec: fields that go together, suffixes that fit
// one parameter each, the tied pair, the orders.
absl::Status CheckTable(const OptimizerConfig& config,
                        const std::vector<kernels::ParameterSpec>& specs,
                        const std::vector<int>& rows);

}  // namespace optim

#endif  // OPTIM_TABLE_CHECKS_H_
