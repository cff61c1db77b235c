// Anvil as the sharded step runs it: rails, cascade, lanes, and decay by the slow rail's sign.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_layout.h"
#include "optim/toy.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using Weights = std::vector<std::vector<double>>;

constexpr size_t kQk = 0, kVo = 1, kMlp = 2;
// A decay that shows beside the update, so that the gate does.
constexpr double kLr = 0.023, kDecay = 40;
constexpr double kMlpFactors[] = {1, 2, 1, 2, 0, 0};

// Wide, square and tall matrices; 3 and 5 ranks share some of them with padding.
std::vector<ParameterSpec> Specs() {
  return {{"qk_bank", "qk_bank", {6, 4, 8}, DType::kBF16, 6, 4, 8},
          {"vo_bank", "vo_bank", {3, 8, 8}, DType::kBF16, 3, 8, 8},
          {"mlp_bank", "mlp_bank", {3, 2, 16, 8}, DType::kBF16, 6, 16, 8}};
}

OptimizerConfig Config() {
  OptimizerConfig config;
  config.grouping = Grouping::kByLabel;
  config.orthogonalizer = "anvil_cascade";
  for (const char* label : {"qk_bank", "vo_bank", "mlp_bank"}) {
    config.table.push_back(
        {.label = label,
         .rule = Rule::kAnvil,
         .lr = kLr,
         .weight_decay = kDecay,
         .beta2 = 0.9,
         .aspect_of_view = true,
         .cautious_decay = true,
         .mantissa = true,
         .rails = {.slow_beta = 0.98, .fast_beta = 0.8, .fast_weight = 0.4385, .engaged_from = 2}});
    config.scatter_order.push_back(label);
  }
  config.table[kMlp].matrix_lr_mul.assign(std::begin(kMlpFactors), std::end(kMlpFactors));
  config.work_order = config.scatter_order;
  return config;
}

// Matrix b of a bank after `steps` steps from `p`, in float64 but for the gradient, which is bf16.
Matrix Reference(const ParameterSpec& spec, size_t bank, int64_t b, Matrix p, int steps,
                 double weight_decay) {
  const int64_t rows = spec.rows, cols = spec.cols, size = rows * cols;
  Matrix fast(size, 0.0), slow(size, 0.0), lanes(rows >= cols ? rows : cols, 0.0);
  for (int step = 0; step < steps; ++step) {
    const StepRates rates = ToyRank::RatesAt(step);
    const double beta = step < 2 ? rates.momentum : 0.8, weight = step < 2 ? 1 : 0.4385;
    const Matrix all = Gradient(spec, bank, step);
    Matrix u(size);
    for (int64_t j = 0; j < size; ++j) {
      const double g = kernels::RoundToBF16(static_cast<float>(all[b * size + j]));
      fast[j] += (1 - beta) * (g - fast[j]);
      slow[j] += 0.02 * (g - slow[j]);
      u[j] = g + rates.momentum * (weight * fast[j] + (1 - weight) * slow[j] - g);
    }
    Matrix o = CascadeOracle(u, rows, cols);
    o = rows >= cols ? SecondMomentPerRowOracle(o, rows, cols, 0.9, &lanes)
                     : SecondMomentOracle(o, rows, cols, 0.9, &lanes);
    const double lr = kLr * rates.lr_multiplier;
    const double step_size =
        lr * std::sqrt(std::max(1.0, 1.0 * rows / cols)) * (bank == kMlp ? kMlpFactors[b] : 1);
    for (int64_t j = 0; j < size; ++j) {
      const double shrink = slow[j] * p[j] >= 0 ? p[j] * weight_decay * lr * step_size : 0;
      p[j] -= shrink + step_size * o[j];
    }
  }
  return p;
}

// The bf16 of the cascade and of its result: 1 % in norm; where bf16 sums of eight gradients put a
// slow rail on the other side of zero, a weight decays or not. With the smaller decay the direction
// is nearly all of the movement, with the larger one the gate.
TEST(Anvil, AN_04_AN_12_StepsMatchFloat64) {
  constexpr int kSteps = 6;
  const std::vector<ParameterSpec> specs = Specs();
  for (double weight_decay : {2.25, kDecay}) {
    OptimizerConfig config = Config();
    for (ParamRow& row : config.table) row.weight_decay = weight_decay;
    comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyRank rank(config, specs, comm, false, true);
      const Weights before = rank.toy.Weights();
      ASSERT_TRUE(rank.Train(0, kSteps, queue).ok());
      const Weights after = rank.toy.Weights();
      const OptimizerState state = *rank.optimizer->GatherState(queue);
      for (size_t i : {kQk, kVo, kMlp}) {
        const Matrix exact =
            ExactWeights(after[i], *FindState(state, "anvil.mantissa/" + specs[i].name));
        const int64_t size = specs[i].rows * specs[i].cols;
        for (int64_t b = 0; b < specs[i].matrices; ++b) {
          const Matrix start(before[i].begin() + b * size, before[i].begin() + (b + 1) * size);
          const Matrix want = Reference(specs[i], i, b, start, kSteps, weight_decay);
          double error = 0, moved = 0;
          for (int64_t j = 0; j < size; ++j) {
            error += std::pow(exact[b * size + j] - want[j], 2);
            moved += std::pow(want[j] - start[j], 2);
          }
          EXPECT_LE(std::sqrt(error), 0.03 * std::sqrt(moved)) << specs[i].name << " " << b;
        }
      }
    });
  }
}

struct Snapshot {
  Weights weights;
  OptimizerState state;
};

Snapshot Continue(int ranks, const Snapshot* from, int begin, int end, bool recording = true) {
  std::vector<Snapshot> snapshots(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(Config(), Specs(), comm, true, true);
    rank.optimizer->set_recording(recording);
    if (from != nullptr) {
      const absl::Status loaded = rank.optimizer->LoadState(from->state, queue);
      ASSERT_TRUE(loaded.ok()) << loaded;
      rank.toy.SetWeights(from->weights);
    }
    ASSERT_TRUE(rank.Train(begin, end, queue).ok());
    EXPECT_EQ(rank.toy.PaddingInUse(), 0) << ranks << " ranks, rank " << comm.rank();
    auto state = rank.optimizer->GatherState(queue);
    ASSERT_TRUE(state.ok()) << state.status();
    snapshots[comm.rank()] = {rank.toy.Weights(), *std::move(state)};
  });
  for (const Snapshot& each : snapshots) EXPECT_EQ(each.weights, snapshots[0].weights);
  return snapshots[0];
}

TEST(Anvil, SameBitsOnAnyNumberOfRanks) {
  const Snapshot one = Continue(1, nullptr, 0, 5);
  for (int ranks : {2, 3, 5, 8}) EXPECT_EQ(Continue(ranks, nullptr, 0, 5).weights, one.weights);
}

// Rates, momentum and the rails' engagement (at step 2) change after the update was recorded (in
// step 1), and reach it.
TEST(Anvil, AN_16_NothingIsBakedIntoARecording) {
  EXPECT_EQ(Continue(1, nullptr, 0, 5).weights, Continue(1, nullptr, 0, 5, false).weights);
}

TEST(Anvil, AN_13_FrozenMatricesKeepTheirBits) {
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(Config(), Specs(), comm, false, true);
    const std::vector<double> before = rank.toy.Weights()[kMlp];
    ASSERT_TRUE(rank.Train(0, 6, queue).ok());
    const std::vector<double> after = rank.toy.Weights()[kMlp];
    const OptimizerState state = *rank.optimizer->GatherState(queue);
    const Matrix exact = ExactWeights(after, *FindState(state, "anvil.mantissa/mlp_bank"));
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(exact[i] == before[i], kMlpFactors[i / 128] == 0) << i;
    }
  });
}

// A state from before the rails engage, on other ranks.
TEST(Anvil, ResumesOnAnyNumberOfRanks) {
  const Snapshot unbroken = Continue(1, nullptr, 0, 4);
  const Snapshot half = Continue(3, nullptr, 0, 1);
  for (const char* name : {"muon.momentum/qk_bank", "anvil.slow_rail/qk_bank",
                           "anvil.second_moment/qk_bank", "anvil.mantissa/qk_bank"}) {
    EXPECT_TRUE(FindState(half.state, name) != nullptr) << name;
  }
  EXPECT_EQ(FindState(half.state, "anvil.second_moment/qk_bank")->shape,
            (std::vector<int64_t>{6, 1, 8}));
  for (int ranks : {1, 2, 5}) {
    EXPECT_EQ(Continue(ranks, &half, 1, 4).weights, unbroken.weights) << ranks;
  }
}

// The first step from zero: the slow rail has the gradient's sign already where the gate reads it.
TEST(Anvil, AN_12_TheGateReadsTheUpdatedSlowRail) {
  const std::vector<ParameterSpec> specs = Specs();
  OptimizerConfig config = Config();
  config.table[kVo].weight_decay = 4000;  // the update is nothing beside it
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, specs, comm, true, true);
    const std::vector<double> before = rank.toy.Weights()[kVo];
    ASSERT_TRUE(rank.Train(0, 1, queue).ok());
    const std::vector<double> after = rank.toy.Weights()[kVo];
    const Matrix g = Gradient(specs[kVo], kVo, 0);
    for (size_t i = 0; i < before.size(); ++i) {
      if (std::fabs(before[i]) < 0.1) continue;
      const bool decayed = std::fabs(after[i] - before[i]) > 0.5 * std::fabs(before[i]);
      EXPECT_EQ(decayed, g[i] * before[i] >= 0) << i;
    }
  });
}

absl::Status Planned(void (*change)(OptimizerConfig*)) {
  OptimizerConfig config = Config();
  change(&config);
  return PlanStep(config, Specs()).status();
}

TEST(Anvil, RowsThatDoNotFitAreRefused) {
  EXPECT_TRUE(Planned([](OptimizerConfig*) {}).ok());
  const auto refused = [](void (*change)(OptimizerConfig*), const std::string& text) {
    const absl::Status status = Planned(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  };
  refused([](OptimizerConfig* c) { c->table[0].cautious_decay = false; },
          "label qk_bank: anvil needs a mantissa and cautious_decay");
  refused([](OptimizerConfig* c) { c->table[1].rails.slow_beta = 1; }, "slow_beta 1, ");
  refused([](OptimizerConfig* c) { c->table[1].rails.fast_weight = std::nan(""); },
          "fast_weight nan");
  refused([](OptimizerConfig* c) { c->table[1].rails.engaged_from = -1; }, "engaged_from -1");
  refused([](OptimizerConfig* c) { c->table[2].rule = Rule::kNorMuon; },
          "label mlp_bank: rails are for anvil");
}

}  // namespace
}  // namespace optim
