// The labels and the table of the mainline after ANVIL with small parameters: three banks whose
// gathers are deferred, replicated gates, a head and an embedding that are tied at first.
#ifndef OPTIM_TOY_M_H_
#define OPTIM_TOY_M_H_

#include <string>
#include <utility>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/parameter.h"
#include "optim/oracle.h"
#include "optim/record_m.h"
#include "optim/toy.h"

namespace optim {

// Places in ToySpecsM.
constexpr size_t kToyHeadM = 3, kToyEmbedM = 4;
constexpr int64_t kToyVocabM = 13, kToyDimM = 8;

// 6, 3 and 6 matrices: 2, 4 and 8 ranks share some of them with padding.
inline std::vector<kernels::ParameterSpec> ToySpecsM() {
  std::vector<kernels::ParameterSpec> specs = RecordMSpecs();
  const auto set = [&specs](size_t i, std::vector<int64_t> shape, int64_t matrices, int64_t rows,
                            int64_t cols) {
    specs[i].shape = std::move(shape);
    specs[i].matrices = matrices;
    specs[i].rows = rows;
    specs[i].cols = cols;
  };
  set(0, {6, 4, kToyDimM}, 6, 4, kToyDimM);
  set(1, {3, kToyDimM, kToyDimM}, 3, kToyDimM, kToyDimM);
  set(2, {3, 2, 2 * kToyDimM, kToyDimM}, 6, 2 * kToyDimM, kToyDimM);
  set(kToyHeadM, {kToyDimM, kToyVocabM}, 1, kToyDimM, kToyVocabM);
  set(kToyEmbedM, {kToyVocabM, kToyDimM}, 1, kToyVocabM, kToyDimM);
  set(5, {2 * kToyVocabM, kToyDimM}, 1, 2 * kToyVocabM, kToyDimM);
  return specs;
}

// The rails engage at step 2.
inline OptimizerConfig ToyConfigM() {
  OptimizerConfig config = RecordMConfig();
  for (ParamRow& row : config.table) {
    if (row.rule == Rule::kAnvil) row.rails.engaged_from = 2;
  }
  return config;
}

// A rank whose embedding starts as the transpose of the head and is tied for so many steps.
struct ToyRankM : ToyRank {
  ToyRankM(comm::Communicator& comm, bool deterministic, int tied, const OptimizerConfig& config,
           bool with_room = true)
      : ToyRank(config, ToySpecsM(), comm, deterministic, with_room) {
    tied_steps = tied;
    toy.SetWeight(kToyEmbedM, Transposed(toy.Weights()[kToyHeadM], kToyDimM, kToyVocabM));
  }
};

// What a run of some steps leaves, which all ranks must agree on.
struct SnapshotM {
  std::vector<std::vector<double>> weights;
  OptimizerState state;
};

// Steps begin..end-1 from `from`, if any.
inline SnapshotM ContinueM(int ranks, const SnapshotM* from, int begin, int end, int tied,
                           bool deterministic, const OptimizerConfig& config,
                           bool with_room = true) {
  std::vector<SnapshotM> snapshots(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRankM rank(comm, deterministic, tied, config, with_room);
    if (from != nullptr) {
      const absl::Status loaded = rank.optimizer->LoadState(from->state, queue);
      ASSERT_TRUE(loaded.ok()) << loaded;
      rank.toy.SetWeights(from->weights);
    }
    const absl::Status trained = rank.Train(begin, end, queue);
    ASSERT_TRUE(trained.ok()) << trained;
    EXPECT_EQ(rank.toy.PaddingInUse(), 0) << ranks << " ranks, rank " << comm.rank();
    auto state = rank.optimizer->GatherState(queue);
    ASSERT_TRUE(state.ok()) << state.status();
    snapshots[comm.rank()] = {rank.toy.Weights(), *std::move(state)};
  });
  for (const SnapshotM& each : snapshots) EXPECT_EQ(each.weights, snapshots[0].weights);
  return std::move(snapshots[0]);
}

inline void ExpectSameBits(const SnapshotM& got, const SnapshotM& want, const std::string& what) {
  EXPECT_EQ(got.weights, want.weights) << what;
  ASSERT_EQ(got.state.tensors.size(), want.state.tensors.size()) << what;
  for (const StateTensor& tensor : want.state.tensors) {
    const StateTensor* other = FindState(got.state, tensor.name);
    ASSERT_TRUE(other != nullptr) << what << ": " << tensor.name;
    EXPECT_EQ(other->bytes, tensor.bytes) << what << ": " << tensor.name;
  }
}

}  // namespace optim

#endif  // OPTIM_TOY_M_H_
