// Parameters that are not updated in every step: their gradients wait and add up.
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"
#include "optim/toy_run.h"

namespace optim {
namespace {

using Weights = std::vector<std::vector<double>>;

Snapshot Continue(int ranks, const Snapshot* from, int begin, int end) {
  return ContinueToy(ToyNorMuonConfig(), ToySpecs(), ranks, true, from, begin, end);
}

bool HasPending(const OptimizerState& state, const std::string& name) {
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.name == "adam.pending/" + name) return true;
  }
  return false;
}

// ToyNorMuonConfig updates scalars and head in every second step, the embedding in every third.
TEST(Cadence, OnlyDueParametersMove) {
  const std::vector<kernels::ParameterSpec> specs = ToySpecs();
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), specs, comm, false);
    for (int step = 0; step < 6; ++step) {
      const Weights before = rank.toy.Weights();
      ASSERT_TRUE(rank.Train(step, step + 1, queue).ok());
      const Weights after = rank.toy.Weights();
      for (size_t i = 0; i < specs.size(); ++i) {
        const int every = specs[i].label == "embed"                                    ? 3
                          : specs[i].label == "scalars" || specs[i].label == "lm_head" ? 2
                                                                                       : 1;
        EXPECT_EQ(after[i] != before[i], (step + 1) % every == 0) << specs[i].name << " " << step;
      }
    }
  });
}

// The second step's update is that of one step with the sum of both gradients, and t = 1.
TEST(Cadence, TheGradientIsTheSumOverTheSteps) {
  OptimizerConfig every_step = ToyNorMuonConfig();
  for (ParamRow& row : every_step.table) row.every = 1;
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank twice(ToyNorMuonConfig(), ToySpecs(), comm, false),
        once(every_step, ToySpecs(), comm, false);
    ASSERT_TRUE(twice.Train(0, 2, queue).ok());
    once.toy.SetGradients(once.run, 0);
    once.toy.AddGradients(once.run, 1);
    StepRates rates = ToyRank::RatesAt(1);
    rates.step = 0;
    ASSERT_TRUE(once.optimizer->Step(rates, {}, queue).ok());
    queue.Synchronize();
    EXPECT_EQ(twice.toy.Weights()[0], once.toy.Weights()[0]) << "scalars";
    EXPECT_EQ(twice.toy.Weights().back(), once.toy.Weights().back()) << "lm_head";
  });
}

TEST(Cadence, CheckpointBetweenUpdatesLosesNothing) {
  const Snapshot unbroken = Continue(1, nullptr, 0, 6);
  for (int at : {1, 2, 3, 4}) {
    const Snapshot half = Continue(3, nullptr, 0, at);
    EXPECT_EQ(HasPending(half.state, "lm_head.weight"), at % 2 == 1) << at;
    EXPECT_EQ(HasPending(half.state, "embed.weight"), at % 3 != 0) << at;
    for (int ranks : {1, 2}) {
      const Snapshot resumed = Continue(ranks, &half, at, 6);
      EXPECT_EQ(resumed.weights, unbroken.weights) << "stopped at " << at << ", " << ranks;
    }
  }
}

TEST(Cadence, StateWithoutThePendingGradientIsRefused) {
  Snapshot half = Continue(1, nullptr, 0, 1);
  std::vector<StateTensor> kept;
  for (StateTensor& tensor : half.state.tensors) {
    if (tensor.name != "adam.pending/lm_head.weight") kept.push_back(std::move(tensor));
  }
  ASSERT_EQ(kept.size() + 1, half.state.tensors.size());
  half.state.tensors = std::move(kept);
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), ToySpecs(), comm, true);
    const absl::Status status = rank.optimizer->LoadState(half.state, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("adam.pending/lm_head.weight"), std::string::npos)
        << status;
  });
}

}  // namespace
}  // namespace optim
