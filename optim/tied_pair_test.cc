// The head and the embedding: tied, untied, and in checkpoints of both.
#include "optim/tied_pair.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy_banks.h"

namespace optim {
namespace {

using kernels::DType;

Matrix ToDouble(const StateTensor& tensor) {
  Matrix values(tensor.bytes.size() / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof(float));
    values[i] = value;
  }
  return values;
}

// The embedding is the head's transpose, bit for bit, as long as the two are tied.
TEST(TiedPair, UO_06_EmbeddingFollowsTheHead) {
  for (bool deterministic : {false, true}) {
    comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyBanksRank rank(comm, deterministic, 6);
      Matrix last = rank.toy.Weights()[kToyHead];
      for (int step = 0; step < 8; ++step) {
        ASSERT_TRUE(rank.Train(step, step + 1, queue).ok());
        const Weights weights = rank.toy.Weights();
        EXPECT_EQ(weights[kToyHead] != last, step % 2 == 1) << step;
        EXPECT_EQ(weights[kToyEmbed] == HeadToEmbed(weights[kToyHead]), step < 7) << step;
        last = weights[kToyHead];
      }
    });
  }
}

// The pair's mean gradient over the slots, in the embedding's layout, of two steps.
Matrix PairGradient(size_t which, int step) {
  const kernels::ParameterSpec spec = ToyBanksSpecs()[which];
  Matrix g(spec.size(), 0.0);
  for (int s : {step - 1, step}) {
    for (int slot = 0; slot < kSlots; ++slot) {
      const std::vector<double> part = Toy::SlotGradient(spec, which, s, slot);
      for (size_t j = 0; j < g.size(); ++j) g[j] += part[j] / kSlots;
    }
  }
  return which == kToyHead ? HeadToEmbed(g) : g;
}

// The table with betas whose bias correction differs from one update to the next.
OptimizerConfig SlowBetas() {
  OptimizerConfig config = ToyBanksConfig();
  for (size_t i : {kToyHead, kToyEmbed}) {
    config.table[i].beta1 = 0.9;
    config.table[i].beta2 = 0.99;
  }
  return config;
}

// Head and embedding, both in the embedding's layout, after six steps of which four are tied: two
// updates of both as one, then one of each. In float64 but for the storage of weights.
std::pair<Matrix, Matrix> PairReference(const Matrix& start) {
  const ParamRow row = SlowBetas().table[kToyEmbed];
  const auto rounded = [](double x) { return kernels::RoundToBF16(static_cast<float>(x)); };
  const auto update = [&](AdamOracle* adam, double p, double g, int step) -> double {
    adam->lr = row.lr * ToyRank::RatesAt(step).lr_multiplier;
    const double decay = adam->lr * adam->lr * row.weight_decay * row.wd_mul;
    return rounded(adam->CautiousStep(p, rounded(g), decay));
  };
  Matrix g[2][3];
  for (int i = 0; i < 3; ++i) {
    g[0][i] = PairGradient(kToyHead, 2 * i + 1);
    g[1][i] = PairGradient(kToyEmbed, 2 * i + 1);
  }
  std::pair<Matrix, Matrix> ends;
  for (size_t j = 0; j < start.size(); ++j) {
    AdamOracle both{0, row.beta1, row.beta2, row.eps};
    double p = start[j];
    for (int i : {0, 1}) p = update(&both, p, g[0][i][j] + g[1][i][j], 2 * i + 1);
    AdamOracle head = both, embed = both;
    ends.first.push_back(update(&head, p, g[0][2][j], 5));
    ends.second.push_back(update(&embed, p, g[1][2][j], 5));
    EXPECT_EQ(embed.t, 3);
  }
  return ends;
}

// The head has had two updates, so the embedding's first of its own has the counter 3, and moments
// that begin as the head's. Weights are small, so that bf16 shows 1 % of an update.
TEST(TiedPair, UO_28_FirstUpdateApart) {
  const OptimizerConfig config = SlowBetas();
  Weights start;
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue&) {
    start = ToyBanksRank(comm, false, 0).toy.Weights();
  });
  for (double& w : start[kToyHead]) w = kernels::RoundToBF16(static_cast<float>(w / 256));
  start[kToyEmbed] = HeadToEmbed(start[kToyHead]);
  const auto [want_head, want_embed] = PairReference(start[kToyEmbed]);
  for (int ranks : {1, 3, 8}) {
    comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyBanksRank rank(comm, false, 4, config);
      rank.toy.SetWeights(start);
      ASSERT_TRUE(rank.Train(0, 6, queue).ok());
      const Weights after = rank.toy.Weights();
      const Matrix head = HeadToEmbed(after[kToyHead]), embed = after[kToyEmbed];
      const double tolerance = 3 * 0.01 * config.table[kToyEmbed].lr;
      for (size_t j = 0; j < embed.size(); ++j) {
        EXPECT_NEAR(head[j], want_head[j], tolerance) << j;
        EXPECT_NEAR(embed[j], want_embed[j], tolerance) << j;
      }
    });
  }
}

// After the copy each rank has its part of the head's moments, transposed: together they are all.
TEST(TiedPair, UO_41_MomentsAreTheHeadsTransposed) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyBanksRank rank(comm, true, 4);
      ASSERT_TRUE(rank.Train(0, 4, queue).ok());
      const OptimizerState tied = *rank.optimizer->GatherState(queue);
      EXPECT_EQ(FindState(tied, "adam.m/embed.weight"), nullptr);
      ASSERT_TRUE(rank.Train(4, 5, queue).ok());  // even: the pair is not updated
      const OptimizerState untied = *rank.optimizer->GatherState(queue);
      for (const char* moment : {"adam.m/", "adam.v/"}) {
        const StateTensor* head = FindState(untied, std::string(moment) + "lm_head.weight");
        const StateTensor* embed = FindState(untied, std::string(moment) + "embed.weight");
        ASSERT_TRUE(head != nullptr && embed != nullptr);
        EXPECT_EQ(head->bytes, FindState(tied, head->name)->bytes);
        EXPECT_EQ(embed->shape, (std::vector<int64_t>{kToyVocab, kToyDim}));
        EXPECT_EQ(ToDouble(*embed), HeadToEmbed(ToDouble(*head))) << moment << ranks << " ranks";
        for (double value : ToDouble(*head)) EXPECT_NE(value, 0.0);
      }
    });
  }
}

// A pair that is never tied is two parameters of plain Adam.
TEST(TiedPair, NeverTied) {
  OptimizerConfig plain = ToyBanksConfig();
  plain.table.back().tied_to.clear();
  EXPECT_EQ(TrainBanks(3, 4, 0, true), TrainBanks(2, 4, 0, true, plain));
}

// While tied, what both gradients hold after an even step waits, and is gone after the update.
TEST(TiedPair, GradientsOfBothWait) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, false, 9);
    for (int step = 0; step < 4; ++step) {
      ASSERT_TRUE(rank.Train(step, step + 1, queue).ok());
      rank.optimizer->ClearGradients(queue);
      queue.Synchronize();
      for (size_t i : {kToyHead, kToyEmbed}) {
        const kernels::Tensor grad = rank.toy.parameters()[i].grad;
        EXPECT_EQ(std::all_of(grad.f32(), grad.f32() + grad.size(), [](float g) { return g == 0; }),
                  step % 2 == 1)
            << step;
      }
    }
  });
}

struct Snapshot {
  Weights weights;
  OptimizerState state;
};

Snapshot Continue(int ranks, int tied, const Snapshot* from, int begin, int end,
                  bool deterministic = true) {
  Snapshot snapshot;
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, deterministic, tied);
    if (from != nullptr) {
      const absl::Status loaded = rank.optimizer->LoadState(from->state, queue);
      ASSERT_TRUE(loaded.ok()) << loaded;
      rank.toy.SetWeights(from->weights);
    }
    const absl::Status trained = rank.Train(begin, end, queue);
    ASSERT_TRUE(trained.ok()) << trained;
    auto state = rank.optimizer->GatherState(queue);
    ASSERT_TRUE(state.ok()) << state.status();
    if (comm.rank() == ranks - 1) snapshot = {rank.toy.Weights(), *std::move(state)};
  });
  return snapshot;
}

// Cut anywhere: tied after an even and after an odd step, just before the step that unties, and
// after it; on other numbers of ranks than before.
TEST(TiedPair, CheckpointsOnAnyNumberOfRanks) {
  constexpr int kTied = 4, kEnd = 8;
  const Snapshot unbroken = Continue(1, kTied, nullptr, 0, kEnd);
  for (int cut : {0, 1, 2, 4, 5}) {
    const Snapshot half = Continue(3, kTied, nullptr, 0, cut);
    EXPECT_EQ(FindState(half.state, "adam.v/embed.weight") == nullptr, cut >= 1 && cut <= kTied);
    for (int ranks : {1, 5}) {
      const Snapshot resumed = Continue(ranks, kTied, &half, cut, kEnd);
      EXPECT_EQ(resumed.weights, unbroken.weights) << "cut at " << cut << ", " << ranks << " ranks";
      ASSERT_EQ(resumed.state.tensors.size(), unbroken.state.tensors.size());
      for (const StateTensor& tensor : unbroken.state.tensors) {
        const StateTensor* other = FindState(resumed.state, tensor.name);
        ASSERT_TRUE(other != nullptr) << tensor.name;
        EXPECT_EQ(other->bytes, tensor.bytes) << tensor.name;
      }
    }
  }
}

// Also without fixed sums, where one rank goes on with the gradients that wait.
TEST(TiedPair, CheckpointWithoutDeterministic) {
  const Snapshot unbroken = Continue(1, 4, nullptr, 0, 7, false);
  for (int cut : {1, 3, 5}) {
    const Snapshot half = Continue(1, 4, nullptr, 0, cut, false);
    EXPECT_EQ(Continue(1, 4, &half, cut, 7, false).weights, unbroken.weights) << cut;
  }
}

TEST(TiedPair, TiedAgainIsRefused) {
  const Snapshot untied = Continue(2, 2, nullptr, 0, 4);
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, true, 9);
    ASSERT_TRUE(rank.optimizer->LoadState(untied.state, queue).ok());
    const absl::Status status = rank.Train(4, 5, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("tied again at step 4"), std::string::npos)
        << status;
    EXPECT_EQ(rank.optimizer->updates(), 4);

    // One of the two moments is neither tied nor untied.
    OptimizerState half = untied.state;
    half.tensors.erase(std::find_if(half.tensors.begin(), half.tensors.end(),
                                    [](const auto& t) { return t.name == "adam.v/embed.weight"; }));
    const absl::Status loaded = rank.optimizer->LoadState(half, queue);
    EXPECT_EQ(loaded.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(loaded.message()).find("adam.v/embed.weight"), std::string::npos);
  });
}

TEST(TiedPair, TiedWithoutAPairIsRefused) {
  OptimizerConfig config = ToyBanksConfig();
  config.table.back().tied_to.clear();
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, true, 1, config);
    const absl::Status status = rank.Train(0, 1, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(rank.optimizer->updates(), 0);
  });
}

}  // namespace
}  // namespace optim
