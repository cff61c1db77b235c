#include "tools/trainer/sparse_plan_text.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/slot_tree.h"
#include "data/loader.h"
#include "model/parameters.h"
#include "optim/grouping.h"
#include "optim/row_moves.h"
#include "optim/step_layout.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

// Of all tables together.
struct Tables {
  int64_t rows = 0;       // of one
  int64_t row_bytes = 0;  // a row's gradient and weight of all of them
  std::set<int> every;    // steps to an update, of the first stretch and of the last
};

Tables TablesOf(const optim::OptimizerConfig& optimizer,
                const std::vector<kernels::ParameterSpec>& specs) {
  Tables tables;
  for (const kernels::ParameterSpec& spec : specs) {
    for (const optim::ParamRow& row : optimizer.table) {
      if (row.label != spec.label || !row.sparse_rows) continue;
      tables.rows = spec.shape[0];
      tables.row_bytes +=
          spec.shape[1] * (kernels::SizeOf(kernels::DType::kF32) + kernels::SizeOf(spec.dtype));
      tables.every.insert(row.every);
      if (row.later.changes()) tables.every.insert(row.later.every);
    }
  }
  return tables;
}

// Rows that cross links if an update comes after `steps` steps of such batches.
absl::StatusOr<int64_t> RowsMoved(const TrainConfig& config, int64_t slot_tokens, int steps,
                                  int64_t table_rows) {
  const data::LoaderOptions options{
      .files = config.train_files,
      .stages = {{.first_step = 0, .batch = config.batch_options(slot_tokens)}},
      .token_map = config.token_map,
      .epochs = config.epochs};
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<data::TrainLoader> loader,
                        data::TrainLoader::Create(options, {}, 0));
  const int ranks = config.world_size;
  std::vector<optim::RowSet> sets(ranks, optim::RowSet(table_rows));
  for (int step = 0; step < steps; ++step) {
    ABSL_ASSIGN_OR_RETURN(const auto batch, loader->Next());
    for (int rank = 0; rank < ranks; ++rank) {
      const comm::SlotRange run = comm::SlotsOfRank(config.recipe.data.slots, ranks, rank);
      for (int slot = run.begin; slot < run.end; ++slot) {
        for (const int32_t token : batch->slots[slot].inputs) sets[rank].Add(token);
      }
    }
  }
  std::vector<std::vector<int32_t>> wanted;
  for (const optim::RowSet& set : sets) wanted.push_back(set.Ascending());
  return optim::RowsBetweenRanks(wanted, optim::ChunkMembers(table_rows, ranks));
}

}  // namespace

absl::StatusOr<std::string> SparsePlanText(const TrainConfig& config) {
  const Tables tables =
      TablesOf(optim::RowsAsRun(config.recipe.optimizer, config.world_size, config.deterministic),
               model::ParameterSpecs(config.recipe.model));
  if (tables.rows == 0) return std::string();
  // Each rank sends its gradients of what others own, and gets their weights.
  const int64_t shard = optim::ChunkMembers(tables.rows, config.world_size);
  const int64_t all = (config.world_size - 1) * shard * config.world_size;
  std::string text = absl::StrFormat(
      "Rows of the tables that move in an update, of all %d ranks: whole tables are %d rows, "
      "%.1f MB\n",
      config.world_size, all, static_cast<double>(all * tables.row_bytes) / 1e6);
  if (config.train_files.empty()) {
    return absl::StrCat(text, "  how many of them depends on the tokens: give --train_files\n");
  }
  for (const int64_t slot_tokens : config.slot_sizes()) {
    for (const int every : tables.every) {
      const absl::StatusOr<int64_t> moved = RowsMoved(config, slot_tokens, every, tables.rows);
      if (!moved.ok() && !absl::IsOutOfRange(moved.status())) return moved.status();
      absl::StrAppendFormat(&text, "  after %d steps of %7d tokens: ", every,
                            slot_tokens * config.recipe.data.slots);
      text += moved.ok()
                  ? absl::StrFormat("%7d rows, %6.1f MB, %.1f %%\n", *moved,
                                    static_cast<double>(*moved * tables.row_bytes) / 1e6,
                                    100.0 * static_cast<double>(*moved) / static_cast<double>(all))
                  : "the training files hold fewer\n";
    }
  }
  return text;
}

}  // namespace tools
