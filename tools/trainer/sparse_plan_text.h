// --plan: what moves of tables of which ranks read few rows.
#ifndef TOOLS_TRAINER_SPARSE_PLAN_TEXT_H_
#define TOOLS_TRAINER_SPARSE_PLAN_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/train_config.h"

namespace tools {

// For each size of the batch, the rows and bytes that cross links in an update of the tables, of
// all ranks together, beside those of whole tables: counted in the training files, from their
// beginning, for each number of steps to an update that the cadence has. Says so where the files
// hold fewer steps. Empty if all exchanges are of whole tables. Other errors are the loader's.
absl::StatusOr<std::string> SparsePlanText(const TrainConfig& config);

}  // namespace tools

#endif  // TOOLS_TRAINER_SPARSE_PLAN_TEXT_H_
