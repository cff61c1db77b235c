// Checkpoints of the optimizer: the state moves between numbers of ranks and groupings.
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"
#include "optim/toy_run.h"

namespace optim {
namespace {

using Weights = std::vector<std::vector<double>>;

// Trains steps begin to end from given weights and state, and hands both back.
Snapshot Continue(int ranks, Grouping grouping, const Snapshot* from, int begin, int end) {
  OptimizerConfig config = ToyConfig();
  config.grouping = grouping;
  return ContinueToy(config, ToySpecs(), ranks, true, from, begin, end);
}

void ExpectSameState(const OptimizerState& a, const OptimizerState& b) {
  EXPECT_EQ(a.updates, b.updates);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const StateTensor& tensor : a.tensors) {
    const auto same = [&](const StateTensor& other) { return other.name == tensor.name; };
    const auto other = std::find_if(b.tensors.begin(), b.tensors.end(), same);
    ASSERT_TRUE(other != b.tensors.end()) << tensor.name;
    EXPECT_EQ(tensor.dtype, other->dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, other->shape) << tensor.name;
    EXPECT_EQ(tensor.bytes, other->bytes) << tensor.name;
  }
}

TEST(OptimizerState, ResumesOnAnyNumberOfRanks) {
  const Snapshot unbroken = Continue(1, Grouping::kCustomSizing, nullptr, 0, 4);
  const Snapshot half = Continue(3, Grouping::kCustomSizing, nullptr, 0, 2);
  EXPECT_EQ(half.state.updates, 2);
  for (int ranks : {1, 5, 8}) {
    const Snapshot resumed = Continue(ranks, Grouping::kByShape, &half, 2, 4);
    EXPECT_EQ(resumed.weights, unbroken.weights) << ranks << " ranks";
    ExpectSameState(resumed.state, unbroken.state);
  }
}

// Case O10: another dtype or shape, a missing or an unknown tensor. Both sides are named.
TEST(OptimizerState, O10_RefusesWhatDoesNotFit) {
  const Snapshot good = Continue(2, Grouping::kCustomSizing, nullptr, 0, 1);
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyConfig(), ToySpecs(), comm, true);
    const auto error = [&](const OptimizerState& state) {
      const absl::Status status = rank.optimizer->LoadState(state, queue);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(rank.optimizer->updates(), 0);
      return std::string(status.message());
    };
    const auto at = [](OptimizerState& state, const std::string& name) -> StateTensor& {
      for (StateTensor& tensor : state.tensors) {
        if (tensor.name == name) return tensor;
      }
      CHECK(false) << name;
      return state.tensors[0];
    };
    const std::string name = "muon.momentum/blocks.1.qkvo";
    OptimizerState state = good.state;
    at(state, name).dtype = kernels::DType::kBF16;
    std::string message = error(state);
    for (const char* text : {name.c_str(), "needs f32 [8, 32]", "has bf16 [8, 32]"}) {
      EXPECT_NE(message.find(text), std::string::npos) << message;
    }
    state = good.state;
    at(state, "adam.v/embed.weight").shape = {8, 13};
    message = error(state);
    EXPECT_NE(message.find("needs bf16 [13, 8]"), std::string::npos) << message;
    EXPECT_NE(message.find("has bf16 [8, 13]"), std::string::npos) << message;
    state = good.state;
    at(state, "adam.m/scalars").bytes.pop_back();
    message = error(state);
    EXPECT_NE(message.find("(14 bytes)"), std::string::npos) << message;
    EXPECT_NE(message.find("(13 bytes)"), std::string::npos) << message;
    state = good.state;
    at(state, name).name = "muon.momentum/blocks.9.qkvo";
    EXPECT_NE(error(state).find("blocks.9.qkvo"), std::string::npos);
    state = good.state;
    state.tensors.pop_back();
    EXPECT_NE(error(state).find("the checkpoint has none"), std::string::npos);
    state = good.state;
    state.updates = -1;
    EXPECT_NE(error(state).find("-1 updates"), std::string::npos);
  });
}

}  // namespace
}  // namespace optim
