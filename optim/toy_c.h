// The labels and the table of the record of 2026-01-18 with small parameters: banks, replicated
// gates, a head and an embedding that are tied at first.
#ifndef OPTIM_TOY_C_H_
#define OPTIM_TOY_C_H_

#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/parameter.h"
#include "optim/oracle.h"
#include "optim/record_c.h"
#include "optim/toy.h"

namespace optim {

using Weights = std::vector<std::vector<double>>;

constexpr int64_t kToyVocab = 13, kToyDim = 8;
// Places in ToySpecsC.
constexpr size_t kToyAttn = 0, kToyMlp = 1, kToyScalars = 2, kToyHead = 11, kToyEmbed = 12;

// 12 and 6 matrices, which 5 and 7 ranks share with padding, as they do the tables.
inline std::vector<kernels::ParameterSpec> ToySpecsC() {
  using kernels::DType;
  std::vector<kernels::ParameterSpec> specs = RecordCSpecs();
  const auto set = [&specs](size_t i, std::vector<int64_t> shape, int64_t matrices, int64_t rows,
                            int64_t cols) {
    specs[i].shape = std::move(shape);
    specs[i].matrices = matrices;
    specs[i].rows = rows;
    specs[i].cols = cols;
  };
  set(kToyAttn, {3, 4 * kToyDim, kToyDim}, 12, kToyDim, kToyDim);
  set(kToyMlp, {3, 2, 2 * kToyDim, kToyDim}, 6, 2 * kToyDim, kToyDim);
  for (size_t i = 3; i < 6; ++i) set(i, {kToyVocab, kToyDim}, 1, kToyVocab, kToyDim);
  set(kToyHead, {kToyDim, kToyVocab}, 1, kToyDim, kToyVocab);
  set(kToyEmbed, {kToyVocab, kToyDim}, 1, kToyVocab, kToyDim);
  return specs;
}

inline Matrix HeadToEmbed(const Matrix& head) { return Transposed(head, kToyDim, kToyVocab); }

// A rank whose embedding starts as the transpose of the head and is tied for so many steps.
struct ToyRankC : ToyRank {
  ToyRankC(comm::Communicator& comm, bool deterministic, int tied,
           const OptimizerConfig& config = RecordCConfig(), bool with_room = true)
      : ToyRank(config, ToySpecsC(), comm, deterministic, with_room) {
    tied_steps = tied;
    toy.SetWeight(kToyEmbed, HeadToEmbed(toy.Weights()[kToyHead]));
  }
};

// Weights after `steps` steps, which all ranks must agree on.
inline Weights TrainC(int ranks, int steps, int tied, bool deterministic,
                      const OptimizerConfig& config = RecordCConfig(), bool with_room = true) {
  std::vector<Weights> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRankC rank(comm, deterministic, tied, config, with_room);
    const absl::Status status = rank.Train(0, steps, queue);
    ASSERT_TRUE(status.ok()) << status;
    weights[comm.rank()] = rank.toy.Weights();
    EXPECT_EQ(rank.toy.PaddingInUse(), 0) << ranks << " ranks, rank " << comm.rank();
  });
  for (const Weights& each : weights) EXPECT_EQ(each, weights[0]);
  return weights[0];
}

}  // namespace optim

#endif  // OPTIM_TOY_C_H_
