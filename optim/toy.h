// A small set of parameters with memory and made-up gradients; and
// a run of a few optimizer steps over any number of ranks.
#ifndef OPTIM_TOY_H_
#define OPTIM_TOY_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/slot_tree.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"
#include "optim/grouping.h"
#include "optim/oracle.h"
#include "optim/sharded_optimizer.h"

namespace optim {

constexpr int kSlots = 8;

inline std::vector<kernels::ParameterSpec> ToySpecs(int attn = 7, int mlp = 12) {
  using kernels::DType;
  std::vector<kernels::ParameterSpec> specs = {
      {"scalars", "scalars", {7}, DType::kF32, 1, 1, 7},
      {"embed.weight", "embed", {13, 8}, DType::kBF16, 1, 13, 8},
      {"smear_gate.weight", "smear_gate", {1, 12}, DType::kBF16, 1, 1, 12},
  };
  for (int i = 0; i < std::max(attn, mlp); ++i) {
    const std::string block = absl::StrCat("blocks.", i);
    if (i < attn) {
      specs.push_back({block + ".qkvo", "attn", {8, 32}, DType::kF32, 4, 8, 8});
      specs.push_back({block + ".gate", "attn_gate", {2, 12}, DType::kBF16, 1, 2, 12});
    }
    if (i < mlp) specs.push_back({block + ".mlp", "mlp", {8, 32}, DType::kF32, 1, 8, 32});
  }
  specs.push_back({"lm_head.weight", "lm_head", {16, 8}, DType::kBF16, 1, 16, 8});
  return specs;
}

inline OptimizerConfig ToyConfig() {
  OptimizerConfig config;
  const auto adam = [](const char* label, double lr_mul) {
    return ParamRow{.label = label,
                    .rule = Rule::kAdam,
                    .lr = 0.008,
                    .lr_mul = lr_mul,
                    .beta1 = 0.8,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .moment_dtype = kernels::DType::kBF16};
  };
  config.grouping = Grouping::kCustomSizing;
  config.grouping_ranks = 8;
  config.orthogonalizer = "newton_schulz";
  config.table = {adam("scalars", 5), adam("lm_head", 1), adam("embed", 75)};
  for (const char* label : {"smear_gate", "attn_gate", "attn", "mlp"}) {
    config.table.push_back({.label = label, .rule = Rule::kMuon, .lr = 0.05});
  }
  return config;
}

// The same with NorMuon, Polar Express, Adam in every second step, the embedding in every third.
inline OptimizerConfig ToyNorMuonConfig() {
  OptimizerConfig config = ToyConfig();
  config.orthogonalizer = "polar_express";
  for (ParamRow& row : config.table) {
    if (row.rule == Rule::kAdam) {
      row.every = row.label == "embed" ? 3 : 2;
      continue;
    }
    row.rule = Rule::kNorMuon;
    row.lr = 0.03;
    row.beta2 = 0.95;
    row.decay_times_lr = false;
    if (row.label == "mlp") row.named = {{.suffix = "1.mlp", .lr_mul = 2}};
    const bool gate = row.label == "smear_gate" || row.label == "attn_gate";
    row.moment_dtype = gate ? kernels::DType::kBF16 : kernels::DType::kF32;
  }
  return config;
}

// One rank's replica. With `room_for` ranks each parameter has room for their equal chunks.
class Toy {
 public:
  Toy(const std::vector<kernels::ParameterSpec>& specs, int leaves, int room_for = 1)
      : leaves_(leaves) {
    memory_.reserve(2 * specs.size());
    const auto round_up = [&](int64_t n) { return ChunkMembers(n, room_for) * room_for; };
    for (size_t i = 0; i < specs.size(); ++i) {
      const int64_t matrix = specs[i].rows * specs[i].cols;
      const int64_t room =
          std::max(round_up(specs[i].size()), round_up(specs[i].matrices) * matrix);
      memory_.emplace_back(specs[i].dtype, std::vector<int64_t>{room});
      memory_.emplace_back(kernels::DType::kF32,
                           std::vector<int64_t>{leaves == 1 ? room : leaves * specs[i].size()});
      parameters_.push_back({specs[i],
                             memory_[2 * i].get().Slice(0, specs[i].size()).Reshape(specs[i].shape),
                             memory_[2 * i + 1]
                                 .get()
                                 .Slice(0, leaves * specs[i].size())
                                 .Reshape({leaves, specs[i].size()}),
                             room});
      const kernels::testing::HostTensor value = kernels::testing::RandomTensor(
          specs[i].dtype, {specs[i].size()}, static_cast<uint32_t>(i + 1));
      SetWeight(i, value.ToDouble());
    }
  }

  const std::vector<kernels::Parameter>& parameters() const { return parameters_; }

  // The made-up gradient of one slot; of very unequal size from slot to slot, so that the order
  // of the sum shows in its bits.
  static std::vector<double> SlotGradient(const kernels::ParameterSpec& spec, size_t index,
                                          int step, int slot) {
    const uint32_t seed = static_cast<uint32_t>(1000 * (index + 1) + 100 * step + slot);
    return kernels::testing::RandomTensor(kernels::DType::kF32, {spec.size()}, seed,
                                          slot % 2 == 0 ? 1.0 : 0.1)
        .ToDouble();
  }

  // As backward leaves it: one leaf with the slots' sum, or one leaf per slot.
  void SetGradients(comm::SlotRange run, int step) {
    for (const kernels::Parameter& parameter : parameters_) {
      std::fill_n(parameter.grad.f32(), parameter.grad.size(), 0.0f);
    }
    AddGradients(run, step);
  }
  void AddGradients(comm::SlotRange run, int step) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const kernels::ParameterSpec& spec = parameters_[i].spec;
      float* grad = parameters_[i].grad.f32();
      for (int slot = run.begin; slot < run.end; ++slot) {
        float* leaf = leaves_ == 1 ? grad : grad + (slot - run.begin) * spec.size();
        const std::vector<double> g = SlotGradient(spec, i, step, slot);
        for (size_t j = 0; j < g.size(); ++j) leaf[j] += static_cast<float>(g[j]);
      }
    }
  }

  std::vector<std::vector<double>> Weights() const {
    std::vector<std::vector<double>> weights;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      weights.push_back(memory_[2 * i].ToDouble());
      weights.back().resize(parameters_[i].spec.size());
    }
    return weights;
  }

  void SetWeights(const std::vector<std::vector<double>>& weights) {
    for (size_t i = 0; i < weights.size(); ++i) SetWeight(i, weights[i]);
  }
  // What lies beyond it stays zero.
  void SetWeight(size_t i, std::vector<double> weight) {
    weight.resize(memory_[2 * i].get().size());
    memory_[2 * i].Set(weight);
  }

  // Elements beyond the parameters, of weights and of gradients, that are not zero.
  int64_t PaddingInUse() const {
    int64_t used = 0;
    for (size_t i = 0; i < memory_.size(); ++i) {
      const std::vector<double> all = memory_[i].ToDouble();
      const kernels::Parameter& parameter = parameters_[i / 2];
      const auto own = i % 2 == 0 ? parameter.spec.size() : parameter.grad.size();
      used += std::count_if(all.begin() + own, all.end(), [](double x) { return x != 0; });
    }
    return used;
  }

 private:
  int leaves_;
  std::vector<kernels::testing::HostTensor> memory_;
  std::vector<kernels::Parameter> parameters_;
};

// The mean gradient of one step over all slots.
inline Matrix Gradient(const kernels::ParameterSpec& spec, size_t index, int step) {
  Matrix g(spec.size(), 0.0);
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::vector<double> part = Toy::SlotGradient(spec, index, step, slot);
    for (size_t j = 0; j < g.size(); ++j) g[j] += part[j] / kSlots;
  }
  return g;
}

// `upper`, bf16 values, as f32 with the bits that the state keeps.
inline Matrix ExactWeights(const std::vector<double>& upper, const StateTensor& mantissa) {
  Matrix exact;
  for (size_t j = 0; j < upper.size(); ++j) {
    const auto lower = reinterpret_cast<const uint16_t*>(mantissa.bytes.data())[j];
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(upper[j])) | lower;
    exact.push_back(std::bit_cast<float>(bits));
  }
  return exact;
}

// A rank's replica with its optimizer.
struct ToyRank {
  ToyRank(const OptimizerConfig& config, const std::vector<kernels::ParameterSpec>& specs,
          comm::Communicator& comm, bool deterministic, bool with_room = false)
      : run(comm::SlotsOfRank(kSlots, comm.size(), comm.rank())),
        toy(specs, deterministic ? run.count() : 1, with_room ? comm.size() : 1) {
    auto created = ShardedOptimizer::Create(config, toy.parameters(), comm, kSlots, run,
                                            deterministic, kernels::CpuBackend());
    CHECK(created.ok()) << created.status();
    optimizer = *std::move(created);
  }

  // Steps begin..end-1; the rates change from step to step.
  absl::Status Train(int begin, int end, kernels::Queue& queue) {
    for (int step = begin; step < end; ++step) {
      optimizer->ClearGradients(queue);
      absl::Status status = optimizer->FinishGathers(queue);
      if (!status.ok()) return status;
      queue.Synchronize();
      toy.AddGradients(run, step);
      status = Step(step, queue);
      if (!status.ok()) return status;
    }
    const absl::Status status = optimizer->FinishGathers(queue);
    queue.Synchronize();
    return status;
  }
  // The update alone: gathers stay in flight.
  absl::Status Step(int step, kernels::Queue& queue, kernels::Tensor guard = {}) {
    StepRates rates = RatesAt(step);
    rates.tied = step < tied_steps;
    return optimizer->Step(rates, guard, queue);
  }
  static StepRates RatesAt(int step) {
    return {.lr_multiplier = 1.0 - 0.1 * step, .momentum = 0.85 + 0.02 * step, .step = step};
  }

  comm::SlotRange run;
  int tied_steps = 0;
  Toy toy;
  std::unique_ptr<ShardedOptimizer> optimizer;
};

}  // namespace optim

#endif  // OPTIM_TOY_H_
