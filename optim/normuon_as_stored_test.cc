// NorMuon where the matrices of a view share second moments and a norm, as in the record of
// 2025-10-24.
#include <cmath>
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "optim/oracle.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"

namespace optim {
namespace {

using Weights = std::vector<std::vector<double>>;

OptimizerConfig AsStored(Grouping grouping = Grouping::kCustomSizing) {
  OptimizerConfig config = ToyNorMuonConfig();
  config.grouping = grouping;
  for (ParamRow& row : config.table) row.second_moment_as_stored = row.label == "attn";
  return config;
}

Weights TrainOn(int ranks, const OptimizerConfig& config,
                const std::vector<kernels::ParameterSpec>& specs) {
  std::vector<Weights> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, specs, comm, true);
    ASSERT_TRUE(rank.Train(0, 4, queue).ok());
    weights[comm.rank()] = rank.toy.Weights();
  });
  for (const Weights& each : weights) EXPECT_EQ(each, weights[0]);
  return weights[0];
}

TEST(NorMuonAsStored, SameBitsOnAnyNumberOfRanksAndInAnyGrouping) {
  const Weights one = TrainOn(1, AsStored(), ToySpecs());
  for (int ranks : {2, 3, 8}) EXPECT_EQ(TrainOn(ranks, AsStored(), ToySpecs()), one) << ranks;
  EXPECT_EQ(TrainOn(4, AsStored(Grouping::kByLabel), ToySpecs()), one);
}

// A parameter that is its label's only one would else be cut between the matrices of its view.
TEST(NorMuonAsStored, ALoneParameterIsNotCut) {
  const OptimizerConfig config = AsStored(Grouping::kByLabel);
  const Weights one = TrainOn(1, config, ToySpecs(1, 2));
  for (int ranks : {2, 3, 4}) EXPECT_EQ(TrainOn(ranks, config, ToySpecs(1, 2)), one) << ranks;
}

// From zero state u is g but for its length, which the orthogonalisation forgets. The bound is that
// of NorMuon.FirstStepMatchesFloat64, and statistics of each matrix by itself are outside of it.
TEST(NorMuonAsStored, FirstStepMatchesFloat64) {
  const std::vector<kernels::ParameterSpec> specs = ToySpecs(2, 3);
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(AsStored(), specs, comm, true);
    const Weights before = rank.toy.Weights();
    ASSERT_TRUE(rank.Train(0, 1, queue).ok());
    const Weights after = rank.toy.Weights();
    const auto state = rank.optimizer->GatherState(queue);
    ASSERT_TRUE(state.ok()) << state.status();
    int compared = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const kernels::ParameterSpec& spec = specs[i];
      if (spec.label != "attn") continue;
      const Matrix g = Gradient(spec, i, 0);
      Matrix o, each_by_itself;
      const int64_t size = spec.rows * spec.cols;
      for (int64_t m = 0; m < spec.matrices; ++m) {
        const Matrix own(g.begin() + m * size, g.begin() + (m + 1) * size);
        const Matrix part = QuinticOracle(kPolarExpressRule, own, spec.rows, spec.cols);
        o.insert(o.end(), part.begin(), part.end());
        Matrix w(spec.cols, 0.0);
        const Matrix own_p = SecondMomentOracle(part, spec.rows, spec.cols, 0.95, &w);
        each_by_itself.insert(each_by_itself.end(), own_p.begin(), own_p.end());
      }
      Matrix w(spec.shape[1], 0.0);
      const Matrix p = SecondMomentOracle(o, spec.shape[0], spec.shape[1], 0.95, &w);
      double error = 0, error_by_itself = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        const double moved = (before[i][j] - after[i][j]) / 0.03;
        error += std::pow(moved - p[j], 2);
        error_by_itself += std::pow(moved - each_by_itself[j], 2);
      }
      EXPECT_LE(std::sqrt(error), 0.08 * FrobeniusNorm(p)) << spec.name;
      EXPECT_GT(std::sqrt(error_by_itself), 0.16 * FrobeniusNorm(p)) << spec.name;
      for (const StateTensor& tensor : state->tensors) {
        if (tensor.name != "normuon.second_moment/" + spec.name) continue;
        EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 1, 32}));
        ++compared;
      }
    }
    EXPECT_EQ(compared, 2);
  });
}

TEST(NorMuonAsStored, WhatDoesNotGoTogetherIsRefused) {
  OptimizerConfig config = AsStored();
  for (ParamRow& row : config.table) {
    if (row.label == "attn") row.rule = Rule::kMuon;
  }
  const absl::Status muon = RowsOfSpecs(config, ToySpecs()).status();
  EXPECT_NE(muon.message().find("label attn: second_moment_as_stored is not for muon"),
            absl::string_view::npos)
      << muon;
  config = AsStored();
  config.table.back().second_moment_floor = 0;
  const absl::Status floor = RowsOfSpecs(config, ToySpecs()).status();
  EXPECT_NE(floor.message().find("second_moment_floor is 0"), absl::string_view::npos) << floor;
}

}  // namespace
}  // namespace optim
