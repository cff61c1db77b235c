// Some steps of a toy on any number of ranks, from a state on.
#ifndef OPTIM_TOY_RUN_H_
#define OPTIM_TOY_RUN_H_

#include <utility>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "optim/optimizer_state.h"
#include "optim/toy.h"

namespace optim {

// What a run leaves.
struct Snapshot {
  std::vector<std::vector<double>> weights;
  OptimizerState state;
};

// Steps begin..end-1 from `from`, if any; what the last rank has then.
inline Snapshot ContinueToy(const OptimizerConfig& config,
                            const std::vector<kernels::ParameterSpec>& specs, int ranks,
                            bool deterministic, const Snapshot* from, int begin, int end) {
  std::vector<Snapshot> snapshots(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, specs, comm, deterministic);
    if (from != nullptr) {
      const absl::Status loaded = rank.optimizer->LoadState(from->state, queue);
      ASSERT_TRUE(loaded.ok()) << loaded;
      rank.toy.SetWeights(from->weights);
    }
    ASSERT_TRUE(rank.Train(begin, end, queue).ok());
    auto state = rank.optimizer->GatherState(queue);
    ASSERT_TRUE(state.ok()) << state.status();
    // Gathering leaves this run's own sums as they are.
    ASSERT_TRUE(rank.optimizer->GatherState(queue).ok());
    snapshots[comm.rank()] = {rank.toy.Weights(), *std::move(state)};
  });
  return std::move(snapshots[ranks - 1]);
}

}  // namespace optim

#endif  // OPTIM_TOY_RUN_H_
