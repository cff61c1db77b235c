#include "optim/sharded_optimizer.h"

#include <cmath>
#include <limits>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"
#include "optim/oracle.h"
#include "optim/toy.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using kernels::testing::WithinBf16Steps;
using Weights = std::vector<std::vector<double>>;

// Weights after `steps` steps; all ranks must hold the same.
Weights Trained(int ranks, int steps, const std::vector<ParameterSpec>& specs,
                const OptimizerConfig& config, bool deterministic) {
  std::vector<Weights> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, specs, comm, deterministic);
    const absl::Status status = rank.Train(0, steps, queue);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(rank.optimizer->updates(), steps);
    weights[comm.rank()] = rank.toy.Weights();
  });
  for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(weights[rank], weights[0]) << "rank " << rank;
  return weights[0];
}

// The labels that a config's table gives to a rule.
bool IsMuon(const std::string& label) {
  return label == "smear_gate" || label == "attn_gate" || label == "attn" || label == "mlp";
}

double Rounded(double value, DType dtype) {
  return dtype == DType::kBF16 ? kernels::RoundToBF16(static_cast<float>(value)) : value;
}

TEST(ShardedOptimizer, DeterministicBitsForAnyNumberOfRanks) {
  const Weights one = Trained(1, 3, ToySpecs(), ToyConfig(), true);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    EXPECT_EQ(Trained(ranks, 3, ToySpecs(), ToyConfig(), true), one) << ranks << " ranks";
  }
}

// Case O7: 19, 18 and 1 matrices on 8 ranks, so that some ranks own few or nothing.
TEST(ShardedOptimizer, O7_MatricesThatDoNotDivide) {
  for (const auto& [attn, mlp] : {std::pair{7, 12}, {6, 12}, {0, 1}, {1, 0}}) {
    const std::vector<ParameterSpec> specs = ToySpecs(attn, mlp);
    EXPECT_EQ(Trained(8, 2, specs, ToyConfig(), true), Trained(1, 2, specs, ToyConfig(), true))
        << attn << " + " << mlp;
  }
}

TEST(ShardedOptimizer, GroupingChangesNoBit) {
  OptimizerConfig by_shape = ToyConfig(), by_label = ToyConfig();
  by_shape.grouping = Grouping::kByShape;
  by_label.grouping = Grouping::kByLabel;
  const Weights want = Trained(3, 2, ToySpecs(), by_shape, true);
  EXPECT_EQ(Trained(5, 2, ToySpecs(), by_label, true), want);
  EXPECT_EQ(Trained(4, 2, ToySpecs(), ToyConfig(), true), want);
}

// Without --deterministic the gradients agree to rounding. One step, where sums that differ in
// the last bit of f32 turn into at most another rounding of a bf16 weight or of u: one step of a
// weight in bf16, or 2^-8 of an update, in few places. Later steps amplify it.
TEST(ShardedOptimizer, OneStepAgreesForAnyNumberOfRanks) {
  const Weights one = Trained(1, 1, ToySpecs(), ToyConfig(), false);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Weights got = Trained(ranks, 1, ToySpecs(), ToyConfig(), false);
    for (size_t i = 0; i < one.size(); ++i) {
      for (size_t j = 0; j < one[i].size(); ++j) {
        ASSERT_TRUE(WithinBf16Steps(got[i][j], one[i][j], 1, 2e-3))
            << ranks << " ranks, parameter " << i << ", element " << j;
      }
    }
  }
}

// One parameter's weights after each step, in float64 but for the storage of weights.
std::vector<double> AdamReference(const ParameterSpec& spec, const ParamRow& row, size_t index,
                                  std::vector<double> p, int steps) {
  std::vector<AdamOracle> adam(p.size(), AdamOracle{0, row.beta1, row.beta2, row.eps});
  for (int step = 0; step < steps; ++step) {
    std::vector<double> g(p.size(), 0.0);
    for (int slot = 0; slot < kSlots; ++slot) {
      const std::vector<double> part = Toy::SlotGradient(spec, index, step, slot);
      for (size_t j = 0; j < g.size(); ++j) g[j] += part[j] / kSlots;
    }
    for (size_t j = 0; j < p.size(); ++j) {
      adam[j].lr = row.lr * row.lr_mul * ToyRank::RatesAt(step).lr_multiplier;
      p[j] = Rounded(adam[j].Step(p[j], g[j]), spec.dtype);
    }
  }
  return p;
}

std::vector<double> MuonReference(const ParameterSpec& spec, const ParamRow& row, size_t index,
                                  std::vector<double> p, int steps) {
  std::vector<double> m(p.size(), 0.0);
  const int64_t matrix = spec.rows * spec.cols;
  for (int step = 0; step < steps; ++step) {
    const StepRates rates = ToyRank::RatesAt(step);
    std::vector<double> u(p.size(), 0.0);
    for (int slot = 0; slot < kSlots; ++slot) {
      const std::vector<double> part = Toy::SlotGradient(spec, index, step, slot);
      for (size_t j = 0; j < u.size(); ++j) u[j] += part[j] / kSlots;
    }
    for (size_t j = 0; j < u.size(); ++j) {
      m[j] += (1 - rates.momentum) * (u[j] - m[j]);
      u[j] += rates.momentum * (m[j] - u[j]);
    }
    for (int64_t b = 0; b < spec.matrices; ++b) {
      const Matrix o = NewtonSchulzOracle(
          Matrix(u.begin() + b * matrix, u.begin() + (b + 1) * matrix), spec.rows, spec.cols);
      for (int64_t j = 0; j < matrix; ++j) {
        double& weight = p[b * matrix + j];
        weight = Rounded(weight - row.lr * rates.lr_multiplier * o[j], spec.dtype);
      }
    }
  }
  return p;
}

// Muon: bf16 Newton-Schulz is off by 2 % in norm (newton_schulz_test), a single entry by more:
// 0.08 is granted for each step, times lr. Adam: m and v in bf16 are off by 2^-9 each, so a step is
// off by 1 % of at most 3 lr. Weights in bf16: two of their steps, as the roundings may part.
TEST(ShardedOptimizer, MatchesFloat64) {
  constexpr int kSteps = 3;
  const std::vector<ParameterSpec> specs = ToySpecs();
  const OptimizerConfig config = ToyConfig();
  const std::vector<int> rows = *RowsOfSpecs(config, specs);
  const Weights before = Toy(specs, 1).Weights();
  const Weights after = Trained(3, kSteps, specs, config, false);
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamRow& row = config.table[rows[i]];
    const bool muon = IsMuon(specs[i].label);
    const std::vector<double> want =
        (muon ? MuonReference : AdamReference)(specs[i], row, i, before[i], kSteps);
    const double step_error = muon ? 0.08 * row.lr : 0.03 * row.lr * row.lr_mul;
    const double bf16_steps = specs[i].dtype == DType::kBF16 ? 2 : 0;
    for (size_t j = 0; j < want.size(); ++j) {
      EXPECT_TRUE(WithinBf16Steps(after[i][j], want[j], bf16_steps,
                                  kSteps * step_error + 1e-6 * std::fabs(want[j])))
          << specs[i].name << " element " << j;
    }
  }
}

// Runs one f32 scalar through Adam with f32 moments; the gradient of every slot is g.
std::vector<double> ScalarAdam(double lr, double beta1, double eps, const std::vector<double>& g) {
  std::vector<double> weights;
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    OptimizerConfig config;
    config.table = {{.label = "s", .lr = lr, .beta1 = beta1, .beta2 = 0.95, .eps = eps}};
    kernels::testing::HostTensor value(DType::kF32, {1}), grad(DType::kF32, {1, 1});
    value.Set({1.0});
    const std::vector<kernels::Parameter> parameters = {
        {{"s", "s", {1}, DType::kF32, 1, 1, 1}, value.get(), grad.get()}};
    auto optimizer = *ShardedOptimizer::Create(config, parameters, comm, kSlots, {0, kSlots}, false,
                                               kernels::CpuBackend());
    for (size_t i = 0; i < g.size(); ++i) {
      grad.Set({kSlots * g[i]});
      ASSERT_TRUE(optimizer->Step({.step = static_cast<int64_t>(i)}, {}, queue).ok());
      queue.Synchronize();
      weights.push_back(value.ToDouble()[0]);
    }
  });
  return weights;
}

// f32 keeps 24 bits of a weight near 1: 6e-8 a step, and as much from the moments.
TEST(ShardedOptimizer, T1_50_AdamGolden) {
  const double with_08[] = {0.960000001, 0.945941755, 0.931251416};
  const double with_065[] = {0.960000001, 0.949593247, 0.937662721};
  const std::vector<double> a = ScalarAdam(0.04, 0.8, 1e-8, {3, -1, 0.5});
  const std::vector<double> b = ScalarAdam(0.04, 0.65, 1e-8, {3, -1, 0.5});
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(a[i], with_08[i], 3e-7);
    EXPECT_NEAR(b[i], with_065[i], 3e-7);
  }
  const std::vector<double> late = ScalarAdam(0.04, 0.8, 1e-8, {0, 2});
  EXPECT_EQ(late[0], 1.0);
  EXPECT_NEAR(1 - late[1], 0.775791 * 0.04, 3e-7);
}

// Case O11: an epsilon that is large beside sqrt(v) shows where it stands. Outside of the bias
// correction, update 1 of g = 1 is lr sqrt(0.05)/0.2 * 0.2 / (sqrt(0.05) + eps).
TEST(ShardedOptimizer, O11_EpsilonIsOutsideTheBiasCorrection) {
  AdamOracle oracle{0.04, 0.8, 0.95, 0.5};
  double want = 1;
  const std::vector<double> got = ScalarAdam(0.04, 0.8, 0.5, {1, -2, 0.5});
  EXPECT_NEAR(got[0], 1 - 0.04 * std::sqrt(0.05) / (std::sqrt(0.05) + 0.5), 3e-7);
  int i = 0;
  for (double g : {1.0, -2.0, 0.5}) {
    want = oracle.Step(want, g);
    EXPECT_NEAR(got[i++], want, 3e-7);
  }
}

// The momentum after each step of g = 1, 2, -1 at mu = 0.95; u = (1 - mu) g + mu m.
TEST(ShardedOptimizer, T1_51_NesterovGolden) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    OptimizerConfig config;
    config.orthogonalizer = "newton_schulz";
    config.table = {{.label = "w", .rule = Rule::kMuon, .lr = 0.05}};
    kernels::testing::HostTensor value(DType::kF32, {1, 1}), grad(DType::kF32, {1, 1});
    const std::vector<kernels::Parameter> parameters = {
        {{"w", "w", {1, 1}, DType::kF32, 1, 1, 1}, value.get(), grad.get()}};
    auto optimizer = *ShardedOptimizer::Create(config, parameters, comm, kSlots, {0, kSlots}, false,
                                               kernels::CpuBackend());
    const double g[] = {1, 2, -1}, want[] = {0.0975, 0.240125, 0.035619};
    for (int i = 0; i < 3; ++i) {
      grad.Set({kSlots * g[i]});
      ASSERT_TRUE(
          optimizer->Step({.lr_multiplier = 1, .momentum = 0.95, .step = i}, {}, queue).ok());
      const OptimizerState state = *optimizer->GatherState(queue);
      ASSERT_EQ(state.tensors[0].name, "muon.momentum/w");
      const float m = *reinterpret_cast<const float*>(state.tensors[0].bytes.data());
      EXPECT_NEAR(0.05 * g[i] + 0.95 * m, want[i], 1e-6);
    }
  });
}

// Cases O1 and O9, and the shape of T1-48: where no slot of any rank has a gradient, no bit of
// the weights changes and nothing becomes NaN; a gradient on one rank only counts for all.
TEST(ShardedOptimizer, T1_48_ZeroGradientsChangeNothing) {
  const std::vector<ParameterSpec> specs = ToySpecs(2, 3);
  const Weights before = Toy(specs, 1).Weights();
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyConfig(), specs, comm, false);
    const kernels::Parameter& head = rank.toy.parameters().back();
    ASSERT_EQ(head.spec.name, "lm_head.weight");
    std::fill_n(head.value.bf16(), head.value.size(), kernels::BF16{0});
    for (int step = 0; step < 2; ++step) {
      for (const kernels::Parameter& parameter : rank.toy.parameters()) {
        std::fill_n(parameter.grad.f32(), parameter.grad.size(), 0.0f);
      }
      if (comm.rank() == 1 && step == 0) std::fill_n(head.grad.f32(), head.grad.size(), 3.0f);
      ASSERT_TRUE(
          rank.optimizer->Step({.lr_multiplier = 1, .momentum = 0.85, .step = step}, {}, queue)
              .ok());
      queue.Synchronize();
      // The first update of a zero weight is -lr, in bf16.
      if (step == 0) {
        for (int64_t j = 0; j < head.value.size(); ++j) {
          EXPECT_EQ(kernels::ToFloat(head.value.bf16()[j]), kernels::RoundToBF16(-0.008f));
        }
      }
    }
    const Weights after = rank.toy.Weights();
    for (size_t i = 0; i + 1 < specs.size(); ++i) EXPECT_EQ(after[i], before[i]) << specs[i].name;
  });
}

// What the ranks agree on after a search of weights and gradients.
std::optional<AgreedNonFinite> Check(ToyRank& rank, kernels::Queue& queue) {
  rank.optimizer->LaunchFiniteCheck(queue);
  std::vector<int64_t> found(rank.optimizer->found().size());
  queue.Download(rank.optimizer->found(), found.data());
  queue.Synchronize();
  return *rank.optimizer->AgreeOnNonFinite(rank.optimizer->DecodeFound(found.data()), queue);
}

// Case O6: one bad entry on one rank stops all, names the tensor, and no weight has changed.
TEST(ShardedOptimizer, O6_NonFiniteGradientIsNamed) {
  const std::vector<ParameterSpec> specs = ToySpecs(2, 3);
  const Weights before = Toy(specs, 1).Weights();
  for (bool deterministic : {false, true}) {
    comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyRank rank(ToyConfig(), specs, comm, deterministic);
      rank.toy.SetGradients(rank.run, 0);
      EXPECT_FALSE(Check(rank, queue).has_value());
      const size_t bad = 5;
      if (comm.rank() == 1) {  // slots 3 to 5; the second of them if there is a leaf for each
        const kernels::Tensor grad = rank.toy.parameters()[bad].grad;
        const int64_t leaf = deterministic ? specs[bad].size() : 0;
        grad.f32()[leaf + 17] = std::numeric_limits<float>::infinity();
      }
      const std::optional<AgreedNonFinite> found = Check(rank, queue);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->text, absl::StrCat("gradient of ", specs[bad].name,
                                          " is not finite at element 17 (rank 1, ",
                                          deterministic ? "slot 4)" : "slots 3 to 5)"));
      EXPECT_EQ(found->what.leaf, deterministic ? 1 : 0);
      EXPECT_EQ(rank.toy.Weights(), before);
      EXPECT_EQ(rank.optimizer->updates(), 0);
    });
  }
}

// Case O6: a weight that an update has spoilt is named before any gradient, and is not there for
// the check of weights alone to miss.
TEST(ShardedOptimizer, O6_NonFiniteWeightIsNamed) {
  const std::vector<ParameterSpec> specs = ToySpecs(2, 3);
  for (bool deterministic : {false, true}) {
    comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyRank rank(ToyConfig(), specs, comm, deterministic);
      rank.toy.SetGradients(rank.run, 0);
      EXPECT_FALSE(rank.optimizer->FirstNonFiniteWeight(queue).has_value());
      const kernels::Parameter& bad = rank.toy.parameters().back();
      for (const kernels::Parameter& parameter : rank.toy.parameters()) {
        parameter.grad.f32()[0] = NAN;
      }
      if (bad.value.dtype() == DType::kF32) {
        bad.value.f32()[3] = INFINITY;
      } else {
        bad.value.bf16()[3] = kernels::ToBF16(INFINITY);
      }
      for (const std::optional<AgreedNonFinite>& found :
           {Check(rank, queue), *rank.optimizer->AgreeOnNonFinite(
                                    rank.optimizer->FirstNonFiniteWeight(queue), queue)}) {
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->what.leaf, NonFinite::kWeight);
        EXPECT_EQ(found->text,
                  absl::StrCat("weight ", bad.spec.name, " is not finite at element 3 (rank 0)"));
      }
    });
  }
}

// A step that the device calls off: NaN everywhere, yet weights and state keep their bits.
TEST(ShardedOptimizer, ZeroGuardLeavesWeightsAndState) {
  const std::vector<ParameterSpec> specs = ToySpecs(2, 3);
  for (bool deterministic : {false, true}) {
    comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyRank rank(ToyConfig(), specs, comm, deterministic);
      ASSERT_TRUE(rank.Train(0, 1, queue).ok());
      const Weights weights = rank.toy.Weights();
      const OptimizerState state = *rank.optimizer->GatherState(queue);
      for (const kernels::Parameter& parameter : rank.toy.parameters()) {
        std::fill_n(parameter.grad.f32(), parameter.grad.size(), NAN);
      }
      const kernels::testing::HostTensor guard(DType::kI32, {1});
      ASSERT_TRUE(rank.optimizer->Step(ToyRank::RatesAt(1), guard, queue).ok());
      queue.Synchronize();
      EXPECT_EQ(rank.toy.Weights(), weights);
      EXPECT_EQ(rank.optimizer->updates(), 2);
      const OptimizerState after = *rank.optimizer->GatherState(queue);
      ASSERT_EQ(after.tensors.size(), state.tensors.size());
      for (size_t i = 0; i < state.tensors.size(); ++i) {
        EXPECT_EQ(after.tensors[i].bytes, state.tensors[i].bytes) << state.tensors[i].name;
      }
      // And with any other guard the next step is taken.
      guard.get().i32()[0] = 1;
      rank.toy.SetGradients(rank.run, 2);
      ASSERT_TRUE(rank.optimizer->Step(ToyRank::RatesAt(2), guard, queue).ok());
      queue.Synchronize();
      EXPECT_NE(rank.toy.Weights(), weights);
    });
  }
}

TEST(ShardedOptimizer, ALostRankEndsTheStepWithAnError) {
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(ToyConfig(), ToySpecs(2, 3), comm, false);
    if (comm.rank() == 1) {
      comm.Abort(absl::UnavailableError("rank 1 was told to go"));
      return;
    }
    const absl::Status status = rank.Train(0, 1, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(rank.optimizer->updates(), 0);
  });
}

TEST(ShardedOptimizer, RefusesMoreRanksThanSlotsAndUnknownParts) {
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue&) {
    const Toy toy(ToySpecs(), 1);
    const auto error = [&](const OptimizerConfig& config, int slots, comm::SlotRange run) {
      return std::string(ShardedOptimizer::Create(config, toy.parameters(), comm, slots, run, false,
                                                  kernels::CpuBackend())
                             .status()
                             .message());
    };
    EXPECT_NE(error(ToyConfig(), 2, {0, 1}).find("3 ranks, but only 2 slots"), std::string::npos);
    OptimizerConfig config = ToyConfig();
    config.orthogonalizer = "qr";
    const comm::SlotRange run = comm::SlotsOfRank(kSlots, 3, comm.rank());
    EXPECT_NE(error(config, kSlots, run).find("\"qr\""), std::string::npos);
    config = ToyConfig();
    config.table.pop_back();
    EXPECT_NE(error(config, kSlots, run).find("no row for label \"mlp\""), std::string::npos);
  });
}

}  // namespace
}  // namespace optim
