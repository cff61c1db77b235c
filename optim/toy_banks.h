// Small parameters and a table for the step of three phases: banks, replicated gates, a head and an
// embedding that are tied at first.
#ifndef OPTIM_TOY_BANKS_H_
#define OPTIM_TOY_BANKS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/parameter.h"
#include "optim/oracle.h"
#include "optim/toy.h"

namespace optim {

using Weights = std::vector<std::vector<double>>;

constexpr int64_t kToyVocab = 13, kToyDim = 8;
// Places in ToyBanksSpecs.
constexpr size_t kToyAttn = 0, kToyMlp = 1, kToyHead = 11, kToyEmbed = 12;

// 12 and 6 matrices, which 5 and 7 ranks share with padding, as they do the tables.
inline std::vector<kernels::ParameterSpec> ToyBanksSpecs() {
  constexpr int64_t kDim = kToyDim, kVocab = kToyVocab;
  const kernels::DType bf16 = kernels::DType::kBF16, f32 = kernels::DType::kF32;
  std::vector<kernels::ParameterSpec> specs = {
      {"attn_bank", "attn", {3, 4 * kDim, kDim}, bf16, 12, kDim, kDim},
      {"mlp_bank", "mlp", {3, 2, 2 * kDim, kDim}, bf16, 6, 2 * kDim, kDim},
      {"scalars", "scalars", {40}, f32, 1, 1, 40}};
  for (int i = 0; i < 3; ++i) {
    specs.push_back({absl::StrCat("value_embeds.", i, ".weight"),
                     absl::StrCat("ve", i),
                     {kVocab, kDim},
                     bf16,
                     1,
                     kVocab,
                     kDim});
  }
  specs.push_back({"smear_gate.weight", "smear_gate", {1, 12}, bf16, 1, 1, 12});
  specs.push_back({"skip_gate.weight", "skip_gate", {1, 12}, bf16, 1, 1, 12});
  specs.push_back({"attn_gate_bank", "attn_gate_bank", {10, 6, 12}, bf16, 10, 6, 12});
  specs.push_back({"ve_gate_bank", "ve_gate_bank", {5, 6, 12}, bf16, 5, 6, 12});
  specs.push_back({"x0_lambdas", "x0_lambdas", {11}, f32, 1, 1, 11});
  specs.push_back({"lm_head.weight", "lm_head", {kDim, kVocab}, bf16, 1, kDim, kVocab});
  specs.push_back({"embed.weight", "embed", {kVocab, kDim}, bf16, 1, kVocab, kDim});
  return specs;
}

inline ParamRow ToyAdam(const std::string& label, double lr_mul, double wd_mul, double beta1,
                        double beta2, Comms comms) {
  return {.label = label,
          .rule = Rule::kAdam,
          .lr = 0.008,
          .lr_mul = lr_mul,
          .weight_decay = 0.005,
          .wd_mul = wd_mul,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = 1e-10,
          .every = 2,
          .comms = comms,
          .cautious_decay = true};
}

// Rates as large as those of real runs; two sharded and two replicated kinds of Adam's.
inline OptimizerConfig ToyBanksConfig() {
  OptimizerConfig config;
  config.grouping = Grouping::kByLabel;
  config.orthogonalizer = "polar_express";
  for (const char* label : {"attn", "mlp"}) {
    config.table.push_back({.label = label,
                            .rule = Rule::kNorMuon,
                            .lr = 0.023,
                            .weight_decay = 1.2,
                            .beta2 = 0.95,
                            .aspect_of_view = true,
                            .cautious_decay = true,
                            .mantissa = true});
  }
  config.table[1].matrix_lr_mul = {1, 2};
  config.table.push_back(ToyAdam("scalars", 5, 0, 0.9, 0.99, Comms::kReplicated));
  for (const char* label : {"ve0", "ve1", "ve2"}) {
    config.table.push_back(ToyAdam(label, 75, 5, 0.75, 0.95, Comms::kSharded));
  }
  config.table.push_back(ToyAdam("smear_gate", 0.01, 0, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("skip_gate", 0.05, 0, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("attn_gate_bank", 1, 1, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("ve_gate_bank", 1, 1, 0.9, 0.99, Comms::kReplicated));
  config.table.push_back(ToyAdam("x0_lambdas", 5, 0, 0.65, 0.95, Comms::kReplicated));
  for (const char* label : {"lm_head", "embed"}) {
    config.table.push_back(ToyAdam(label, 1, 150, 0.5, 0.95, Comms::kSharded));
  }
  config.table.back().tied_to = "lm_head";
  for (const ParamRow& row : config.table) config.scatter_order.push_back(row.label);
  config.work_order = config.scatter_order;  // the banks last
  std::rotate(config.work_order.begin(), config.work_order.begin() + 2, config.work_order.end());
  return config;
}

inline Matrix HeadToEmbed(const Matrix& head) { return Transposed(head, kToyDim, kToyVocab); }

// A rank whose embedding starts as the transpose of the head and is tied for so many steps.
struct ToyBanksRank : ToyRank {
  ToyBanksRank(comm::Communicator& comm, bool deterministic, int tied,
               const OptimizerConfig& config = ToyBanksConfig(), bool with_room = true)
      : ToyRank(config, ToyBanksSpecs(), comm, deterministic, with_room) {
    tied_steps = tied;
    toy.SetWeight(kToyEmbed, HeadToEmbed(toy.Weights()[kToyHead]));
  }
};

// Weights after `steps` steps, which all ranks must agree on.
inline Weights TrainBanks(int ranks, int steps, int tied, bool deterministic,
                          const OptimizerConfig& config = ToyBanksConfig(), bool with_room = true) {
  std::vector<Weights> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, deterministic, tied, config, with_room);
    const absl::Status status = rank.Train(0, steps, queue);
    ASSERT_TRUE(status.ok()) << status;
    weights[comm.rank()] = rank.toy.Weights();
    EXPECT_EQ(rank.toy.PaddingInUse(), 0) << ranks << " ranks, rank " << comm.rank();
  });
  for (const Weights& each : weights) EXPECT_EQ(each, weights[0]);
  return weights[0];
}

}  // namespace optim

#endif  // OPTIM_TOY_BANKS_H_
