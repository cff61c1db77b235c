// NorMuon as the sharded step runs it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"

namespace optim {
namespace {

using kernels::testing::WithinBf16Steps;
using Weights = std::vector<std::vector<double>>;

Weights TrainOn(int ranks, Grouping grouping, int steps, bool deterministic = true) {
  OptimizerConfig config = ToyNorMuonConfig();
  config.grouping = grouping;
  std::vector<Weights> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, ToySpecs(), comm, deterministic);
    ASSERT_TRUE(rank.Train(0, steps, queue).ok());
    weights[comm.rank()] = rank.toy.Weights();
  });
  for (const Weights& each : weights) EXPECT_EQ(each, weights[0]);
  return weights[0];
}

TEST(NorMuon, SameBitsOnAnyNumberOfRanksAndInAnyGrouping) {
  const Weights one = TrainOn(1, Grouping::kCustomSizing, 5);
  for (int ranks : {2, 3, 8}) EXPECT_EQ(TrainOn(ranks, Grouping::kCustomSizing, 5), one) << ranks;
  EXPECT_EQ(TrainOn(4, Grouping::kByLabel, 5), one);
}

// Without fixed sums the gradient is the same mean over slots, whatever the ranks: 8 terms in
// another order differ by a few 2^-24; what a rounding to bf16 makes of it is below 2 %.
TEST(NorMuon, T1_53_MeanOverSlotsForAnyNumberOfRanks) {
  const Weights one = TrainOn(1, Grouping::kCustomSizing, 1, false);
  for (int ranks : {2, 4, 8}) {
    const Weights other = TrainOn(ranks, Grouping::kCustomSizing, 1, false);
    for (size_t i = 0; i < one.size(); ++i) {
      for (size_t j = 0; j < one[i].size(); ++j) {
        EXPECT_TRUE(WithinBf16Steps(other[i][j], one[i][j], 1, 0.06 * 0.02));
      }
    }
  }
}

// One step of each matrix rule from zero state: u = (1 - mu) g + mu (1 - mu) g is g but for its
// length, which the orthogonalisation forgets.
TEST(NorMuon, FirstStepMatchesFloat64) {
  const std::vector<kernels::ParameterSpec> specs = ToySpecs(2, 3);
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), specs, comm, true);
    const Weights before = rank.toy.Weights();
    ASSERT_TRUE(rank.Train(0, 1, queue).ok());
    const Weights after = rank.toy.Weights();
    for (size_t i = 0; i < specs.size(); ++i) {
      const kernels::ParameterSpec& spec = specs[i];
      if (spec.label != "mlp" && spec.label != "attn") continue;
      Matrix g(spec.size(), 0.0);
      for (int slot = 0; slot < kSlots; ++slot) {
        const std::vector<double> part = Toy::SlotGradient(spec, i, 0, slot);
        for (size_t j = 0; j < g.size(); ++j) g[j] += part[j] / kSlots;
      }
      const double lr = spec.name == "blocks.1.mlp" ? 0.06 : 0.03;
      const int64_t size = spec.rows * spec.cols;
      for (int64_t m = 0; m < spec.matrices; ++m) {
        const Matrix own(g.begin() + m * size, g.begin() + (m + 1) * size);
        Matrix w(spec.cols, 0.0);
        const Matrix p =
            SecondMomentOracle(QuinticOracle(kPolarExpressRule, own, spec.rows, spec.cols),
                               spec.rows, spec.cols, 0.95, &w);
        double error = 0;
        for (int64_t j = 0; j < size; ++j) {
          const double moved = before[i][m * size + j] - after[i][m * size + j];
          error += (moved / lr - p[j]) * (moved / lr - p[j]);
        }
        EXPECT_LE(std::sqrt(error), 0.08 * FrobeniusNorm(p)) << spec.name << " matrix " << m;
      }
    }
  });
}

// The one row of the smear gate: every element is its own statistic, so all move alike.
TEST(NorMuon, T1_39_FirstUpdateOfTheSmearGate) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyNorMuonConfig(), ToySpecs(), comm, true);
    // From zero, so that bf16 holds the update itself.
    Weights weights = rank.toy.Weights();
    std::fill(weights[2].begin(), weights[2].end(), 0.0);
    rank.toy.SetWeights(weights);
    ASSERT_TRUE(rank.Train(0, 1, queue).ok());
    const std::vector<double> moved = rank.toy.Weights()[2];
    for (double value : moved) EXPECT_NEAR(std::fabs(value), std::fabs(moved[0]), 0.01 * 0.03);
    // nu0 / sqrt(12), and nu0 is 0.854 to 1.137 for a vector
    EXPECT_NEAR(std::fabs(moved[0]), 0.03 / std::sqrt(12), 0.2 * 0.03 / std::sqrt(12));
  });
}

// Rows are equalised, the norm of the matrix stays. The op reads bf16, so it is compared with the
// oracle of what it reads, and rounds once.
TEST(NorMuon, UO_35_NormalisationPerRow) {
  const Matrix o = {1, 1, 0.1, 0.3};
  const double want[] = {0.72456884, 0.72456884, 0.32403703, 0.9721111};
  Matrix w = {0, 0};
  const Matrix exact = SecondMomentPerRowOracle(o, 2, 2, 0.95, &w);
  EXPECT_NEAR(w[0], 0.05, 1e-15);
  EXPECT_NEAR(w[1], 0.0025, 1e-15);
  EXPECT_NEAR(FrobeniusNorm(exact), 1.449138, 1e-6);
  EXPECT_NEAR(FrobeniusNorm(exact), FrobeniusNorm(o), 1e-12);
  kernels::testing::HostTensor matrix(kernels::DType::kBF16, {1, 2, 2});
  kernels::testing::HostTensor moment(kernels::DType::kF32, {1, 2});
  matrix.Set(o);
  Matrix zero = {0, 0};
  const Matrix stored = SecondMomentPerRowOracle(matrix.ToDouble(), 2, 2, 0.95, &zero);
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  kernels::NormalizeBySecondMoment(
      {.o = matrix.get(), .w = moment.get(), .p = matrix.get(), .beta2 = 0.95f, .per_row = true},
      *queue);
  queue->Synchronize();
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(exact[i], want[i], 1e-8);
    EXPECT_NEAR(stored[i], want[i], kernels::testing::kBf16Roundoff * want[i]);
    EXPECT_TRUE(WithinBf16Steps(matrix.ToDouble()[i], stored[i], 0.5, 1e-6));
  }
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(moment.ToDouble()[i], w[i], 0.01 * w[i]);
}

TEST(NorMuon, ResetForgetsTheState) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank fresh(ToyNorMuonConfig(), ToySpecs(), comm, true),
        used(ToyNorMuonConfig(), ToySpecs(), comm, true);
    const Weights start = used.toy.Weights();
    ASSERT_TRUE(used.Train(0, 3, queue).ok());
    used.optimizer->Reset(queue);
    used.toy.SetWeights(start);
    ASSERT_TRUE(used.Train(0, 2, queue).ok());
    ASSERT_TRUE(fresh.Train(0, 2, queue).ok());
    EXPECT_EQ(used.toy.Weights(), fresh.toy.Weights());
  });
}

}  // namespace
}  // namespace optim
