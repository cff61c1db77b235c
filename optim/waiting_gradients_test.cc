// Gradients that wait for a later step: clearing, checkpoints without --deterministic, lost ones;
// and what the table of such a recipe may not say.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"
#include "optim/toy_run.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using kernels::testing::WithinBf16Steps;
using Weights = std::vector<std::vector<double>>;

// ToyNorMuonConfig: what is updated every how many steps.
int Every(const std::string& label) {
  return label == "embed" ? 3 : label == "scalars" || label == "lm_head" ? 2 : 1;
}

TEST(WaitingGradients, OnlyWhatWasUsedIsCleared) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), ToySpecs(2, 3), comm, false);
    const auto is_zero = [&](size_t i) {
      const kernels::Tensor grad = rank.toy.parameters()[i].grad;
      return std::all_of(grad.f32(), grad.f32() + grad.size(), [](float g) { return g == 0; });
    };
    rank.toy.SetGradients(rank.run, 9);
    rank.optimizer->ClearGradients(queue);  // before the first step: all
    queue.Synchronize();
    for (size_t i = 0; i < rank.toy.parameters().size(); ++i) EXPECT_TRUE(is_zero(i)) << i;
    for (int step = 0; step < 6; ++step) {
      ASSERT_TRUE(rank.Train(step, step + 1, queue).ok());
      rank.optimizer->ClearGradients(queue);
      queue.Synchronize();
      for (size_t i = 0; i < rank.toy.parameters().size(); ++i) {
        const std::string& label = rank.toy.parameters()[i].spec.label;
        EXPECT_EQ(is_zero(i), (step + 1) % Every(label) == 0) << label << " after step " << step;
      }
    }
  });
}

Snapshot Train(int ranks, const Snapshot* from, int begin, int end) {
  return ContinueToy(ToyNorMuonConfig(), ToySpecs(), ranks, false, from, begin, end);
}

// One tensor holds the sum over all slots, and rank 0 goes on with it. Alone, the bits stay. With
// more ranks sums differ in the last bits of f32, which shows as one rounding of a bf16 weight, or
// of a moment in an update of at most 0.04.
TEST(WaitingGradients, ResumeWithoutDeterministic) {
  const Snapshot unbroken = Train(1, nullptr, 0, 2), alone = Train(1, nullptr, 0, 1);
  EXPECT_EQ(Train(1, &alone, 1, 2).weights, unbroken.weights);
  const Snapshot three = Train(3, nullptr, 0, 1);
  const std::vector<ParameterSpec> specs = ToySpecs();
  const Weights got = Train(2, &three, 1, 2).weights;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (Every(specs[i].label) != 2) continue;
    for (size_t j = 0; j < got[i].size(); ++j) {
      EXPECT_TRUE(WithinBf16Steps(got[i][j], unbroken.weights[i][j], 1, 4e-4)) << specs[i].name;
    }
  }
}

// A run that stopped at gradients that were not finite has lost those that waited: its state is
// refused, with the reason.
TEST(WaitingGradients, LostOnesAreMissed) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), ToySpecs(2, 3), comm, false);
    ASSERT_TRUE(rank.Train(0, 2, queue).ok());
    rank.optimizer->ForgetUpdates(1);
    const OptimizerState state = *rank.optimizer->GatherState(queue);
    EXPECT_EQ(state.updates, 1);
    const absl::Status status = rank.optimizer->LoadState(state, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("resume from an earlier checkpoint"),
              std::string::npos)
        << status;
  });
}

// A step that was left out: nothing of it is left, not even in gradients that wait, and the next
// steps are those of a run whose gradients were zero there.
TEST(WaitingGradients, ASkippedStepLeavesNothingBehind) {
  for (const bool deterministic : {false, true}) {
    for (const int64_t bad : {1, 2}) {  // a step after which gradients wait, and one that uses them
      comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
        ToyRank rank(ToyNorMuonConfig(), ToySpecs(2, 3), comm, deterministic);
        ASSERT_TRUE(rank.Train(0, bad, queue).ok());
        const Weights weights = rank.toy.Weights();
        for (const kernels::Parameter& parameter : rank.toy.parameters()) {
          std::fill_n(parameter.grad.f32(), parameter.grad.size(), NAN);
        }
        const kernels::testing::HostTensor guard(DType::kI32, {1});
        ASSERT_TRUE(rank.optimizer->Step(ToyRank::RatesAt(bad), guard, queue).ok());
        rank.optimizer->SkipUpdate(queue);
        queue.Synchronize();
        EXPECT_EQ(rank.toy.Weights(), weights);
        EXPECT_EQ(rank.optimizer->updates(), bad + 1);
        const OptimizerState state = *rank.optimizer->GatherState(queue);
        for (const StateTensor& tensor : state.tensors) {
          if (tensor.name.rfind("adam.pending/", 0) != 0) continue;
          for (const uint8_t byte : tensor.bytes) ASSERT_EQ(byte, 0) << tensor.name;
        }
        // What it left can be saved and loaded, and trains on with finite weights.
        ASSERT_TRUE(rank.optimizer->LoadState(state, queue).ok());
        ASSERT_TRUE(rank.Train(bad + 1, bad + 4, queue).ok());
        queue.Synchronize();
        EXPECT_FALSE(rank.optimizer->FirstNonFiniteWeight(queue).has_value());
        EXPECT_NE(rank.toy.Weights(), weights);
      });
    }
  }
}

// A zero guard keeps moments, momentum and second moments, whatever is in the gradients.
TEST(WaitingGradients, ZeroGuardLeavesNorMuonsState) {
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), ToySpecs(2, 3), comm, true);
    ASSERT_TRUE(rank.Train(0, 2, queue).ok());
    const Weights weights = rank.toy.Weights();
    const OptimizerState state = *rank.optimizer->GatherState(queue);
    for (const kernels::Parameter& parameter : rank.toy.parameters()) {
      std::fill_n(parameter.grad.f32(), parameter.grad.size(), NAN);
    }
    const kernels::testing::HostTensor guard(DType::kI32, {1});
    ASSERT_TRUE(rank.optimizer->Step(ToyRank::RatesAt(2), guard, queue).ok());
    queue.Synchronize();
    EXPECT_EQ(rank.toy.Weights(), weights);
    const OptimizerState after = *rank.optimizer->GatherState(queue);
    for (const StateTensor& tensor : state.tensors) {
      if (tensor.name.rfind("adam.pending/", 0) == 0) continue;  // gone with the step
      const StateTensor* now = FindState(after, tensor.name);
      ASSERT_TRUE(now != nullptr) << tensor.name;
      EXPECT_EQ(now->bytes, tensor.bytes) << tensor.name;
    }
  });
}

// Members of one group go by rates of their own: "1.mlp" by twice the others'.
TEST(WaitingGradients, RatesOfMembersOfOneGroupDiffer) {
  const std::vector<ParameterSpec> specs = ToySpecs(0, 3);
  OptimizerConfig equal = ToyNorMuonConfig();
  equal.table.back().named.clear();
  const auto moved = [&](const OptimizerConfig& config) {
    Weights weights;
    comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyRank rank(config, specs, comm, true);
      for (const kernels::Parameter& p : rank.toy.parameters()) {
        std::fill_n(static_cast<char*>(p.value.data()), p.value.bytes(), 0);
      }
      ASSERT_TRUE(rank.Train(0, 1, queue).ok());
      weights = rank.toy.Weights();
    });
    return weights;
  };
  const Weights two = moved(ToyNorMuonConfig()), one = moved(equal);
  for (size_t i = 0; i < specs.size(); ++i) {
    const double factor = specs[i].name == "blocks.1.mlp" ? 2 : 1;
    for (size_t j = 0; j < one[i].size(); ++j) EXPECT_EQ(two[i][j], factor * one[i][j]);
  }
}

TEST(WaitingGradients, TablesThatCannotBe) {
  const auto error = [](const OptimizerConfig& config) {
    const auto layout = PlanStep(config, ToySpecs(10, 22));  // in two groups of 16
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  OptimizerConfig config = ToyNorMuonConfig();
  config.table.back().named[0].suffix = ".up";
  EXPECT_NE(error(config).find("no parameter's name ends in \".up\""), std::string::npos);
  config = ToyNorMuonConfig();
  config.table.back().named.push_back({.suffix = "s.1.mlp"});
  EXPECT_NE(error(config).find("both \"1.mlp\" and \"s.1.mlp\" fit blocks.1.mlp"),
            std::string::npos);
  config = ToyNorMuonConfig();
  config.table.back().every = 2;
  EXPECT_NE(error(config).find("every is 2"), std::string::npos);
  config = ToyNorMuonConfig();
  config.table.back().moment_dtype = DType::kBF16;
  EXPECT_NE(error(config).find("choose grouping by_label"), std::string::npos);
  config.grouping = Grouping::kByLabel;
  EXPECT_TRUE(PlanStep(config, ToySpecs(10, 22)).ok());
}

}  // namespace
}  // namespace optim
