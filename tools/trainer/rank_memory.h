// All that a rank allocates: planned and allocated before step 0, nothing later.
#ifndef TOOLS_TRAINER_RANK_MEMORY_H_
#define TOOLS_TRAINER_RANK_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/slot_tree.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "model/parameters.h"
#include "optim/sharded_optimizer.h"
#include "tools/trainer/evaluator.h"
#include "tools/trainer/pass.h"
#include "tools/trainer/read_rows.h"
#include "tools/trainer/train_config.h"

namespace tools {

// What follows a rank's slot losses in the gathered row.
constexpr int kLossFlags = 2;  // NaN if a gradient is not finite, 1 if interrupted

struct RankMemory {
  // Of the rank that `comm` is. ResourceExhausted if the backend has not enough, with the bytes.
  static absl::StatusOr<std::unique_ptr<RankMemory>> Create(const TrainConfig& config,
                                                            comm::Communicator& comm,
                                                            kernels::Backend& backend,
                                                            kernels::Queue& queue);
  int64_t bytes() const;

  comm::SlotRange run;  // the rank's slots
  std::unique_ptr<model::ParameterArena> weights;
  std::unique_ptr<PassRunner> passes;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<ReadRows> reads;  // of the optimizer; its source is still to be set
  std::unique_ptr<optim::ShardedOptimizer> optimizer;
  kernels::Arena arena;
  kernels::Tensor losses;      // f32 [kLossFlags + most slots of a rank]
  kernels::Tensor all_losses;  // f32 [ranks, ...]
  kernels::Tensor numbers;     // i64 [ranks]: of RankTrainer::GatherNumbers
  kernels::Tensor guard;       // i32 [1]: 1 as long as all losses and gradients were finite
};

// What rank 0 of a run will allocate, found without allocating it.
struct MemoryPlan {
  int64_t weights = 0;     // with their gradients
  int64_t passes = 0;      // activations of the largest pass
  int64_t validation = 0;  // its activations, in the same place: the larger of the two counts
  int64_t optimizer = 0;
  int64_t total = 0;  // the above and what little else there is
};
// `queue`: of the device in question. InvalidArgument: the configuration cannot run.
absl::StatusOr<MemoryPlan> PlanMemory(const TrainConfig& config, kernels::Queue& queue);

// InvalidArgument if the run plans more than --memory_gib allows (0: anything), with both numbers
// and what would fit.
absl::Status CheckMemory(const TrainConfig& config, kernels::Queue& queue);

// Other divisions of the batch and what they plan, the largest first, with the card that holds
// them: a table for people.
absl::StatusOr<std::string> MemoryChoicesText(const TrainConfig& config, kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_TRAINER_RANK_MEMORY_H_
