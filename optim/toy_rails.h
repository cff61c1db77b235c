// Small parameters and a table for matrices with momentum on two rails: three banks whose gathers
// are deferred, replicated gates that share memory, a table whose cadence changes, a head and an
// embedding that are tied at first.
#ifndef OPTIM_TOY_RAILS_H_
#define OPTIM_TOY_RAILS_H_

#include <string>
#include <utility>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/parameter.h"
#include "optim/oracle.h"
#include "optim/toy.h"
#include "optim/toy_banks.h"

namespace optim {

// Places in ToyRailsSpecs.
constexpr size_t kRailsHead = 3, kRailsEmbed = 4;

// 6, 3 and 6 matrices: 2, 4 and 8 ranks share some of them with padding.
inline std::vector<kernels::ParameterSpec> ToyRailsSpecs() {
  constexpr int64_t kDim = kToyDim, kVocab = kToyVocab;
  const kernels::DType bf16 = kernels::DType::kBF16, f32 = kernels::DType::kF32;
  return {
      {"qk_bank", "qk_bank", {6, 4, kDim}, bf16, 6, 4, kDim},
      {"vo_bank", "vo_bank", {3, kDim, kDim}, bf16, 3, kDim, kDim},
      {"mlp_bank", "mlp_bank", {3, 2, 2 * kDim, kDim}, bf16, 6, 2 * kDim, kDim},
      {"lm_head", "lm_head", {kDim, kVocab}, bf16, 1, kDim, kVocab},
      {"embed", "embed", {kVocab, kDim}, bf16, 1, kVocab, kDim},
      {"value_embeds", "value_embeds", {2 * kVocab, kDim}, bf16, 1, 2 * kVocab, kDim},
      {"ve_gate_bank", "ve_gate_bank", {3, 6, 12}, bf16, 3, 6, 12},
      {"smear_gate", "smear_gate", {1, 12}, bf16, 1, 1, 12},
      {"scalars", "scalars", {24}, f32, 1, 1, 24},
  };
}

// The rails engage at step 2.
inline OptimizerConfig ToyRailsConfig() {
  OptimizerConfig config;
  config.grouping = Grouping::kByLabel;
  config.orthogonalizer = "anvil_cascade";
  config.flat_replicated = true;
  for (const char* label : {"qk_bank", "vo_bank", "mlp_bank"}) {
    config.table.push_back(
        {.label = label,
         .rule = Rule::kAnvil,
         .lr = 0.023,
         .weight_decay = 2.25,
         .beta2 = 0.9,
         .aspect_of_view = true,
         .cautious_decay = true,
         .mantissa = true,
         .rails = {.slow_beta = 0.98, .fast_beta = 0.85, .fast_weight = 0.4385, .engaged_from = 2},
         .defer_gather = true});
  }
  // Of c_fc and c_proj in turn; the eighth slot is frozen.
  for (int slot = 0; slot < 12; ++slot) {
    const double factor = slot == 7 ? 0 : 1;
    config.table[2].matrix_lr_mul.push_back(factor);
    config.table[2].matrix_lr_mul.push_back(2 * factor);
  }
  config.table.push_back(ToyAdam("value_embeds", 70, 5, 0.75, 0.95, Comms::kSharded));
  config.table.back().later = {.from_step = 336, .every = 4};
  config.table.push_back(ToyAdam("lm_head", 1, 150, 0.5, 0.95, Comms::kSharded));
  config.table.push_back(ToyAdam("embed", 1, 150, 0.5, 0.95, Comms::kSharded));
  config.table.back().tied_to = "lm_head";
  config.table.push_back(ToyAdam("scalars", 5, 0, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("smear_gate", 0.01, 0, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("ve_gate_bank", 1, 1, 0.9, 0.99, Comms::kReplicated));
  for (const ParamRow& row : config.table) config.scatter_order.push_back(row.label);
  config.work_order = {"qk_bank", "vo_bank",    "lm_head",      "embed",   "value_embeds",
                       "scalars", "smear_gate", "ve_gate_bank", "mlp_bank"};
  return config;
}

// A rank whose embedding starts as the transpose of the head and is tied for so many steps.
struct ToyRailsRank : ToyRank {
  ToyRailsRank(comm::Communicator& comm, bool deterministic, int tied,
               const OptimizerConfig& config, bool with_room = true)
      : ToyRank(config, ToyRailsSpecs(), comm, deterministic, with_room) {
    tied_steps = tied;
    toy.SetWeight(kRailsEmbed, Transposed(toy.Weights()[kRailsHead], kToyDim, kToyVocab));
  }
};

// What a run of some steps leaves, which all ranks must agree on.
struct RailsSnapshot {
  std::vector<std::vector<double>> weights;
  OptimizerState state;
};

// Steps begin..end-1 from `from`, if any.
inline RailsSnapshot ContinueRails(int ranks, const RailsSnapshot* from, int begin, int end,
                                   int tied, bool deterministic, const OptimizerConfig& config,
                                   bool with_room = true) {
  std::vector<RailsSnapshot> snapshots(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRailsRank rank(comm, deterministic, tied, config, with_room);
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
  for (const RailsSnapshot& each : snapshots) EXPECT_EQ(each.weights, snapshots[0].weights);
  return std::move(snapshots[0]);
}

inline void ExpectSameBits(const RailsSnapshot& got, const RailsSnapshot& want,
                           const std::string& what) {
  EXPECT_EQ(got.weights, want.weights) << what;
  ASSERT_EQ(got.state.tensors.size(), want.state.tensors.size()) << what;
  for (const StateTensor& tensor : want.state.tensors) {
    const StateTensor* other = FindState(got.state, tensor.name);
    ASSERT_TRUE(other != nullptr) << what << ": " << tensor.name;
    EXPECT_EQ(other->bytes, tensor.bytes) << what << ": " << tensor.name;
  }
}

}  // namespace optim

#endif  // OPTIM_TOY_RAILS_H_
