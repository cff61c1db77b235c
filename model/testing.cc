#include "model/testing.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/rotary.h"
#include "third_party/absl_compat/check.h"

namespace model::testing {
namespace {

using kernels::DType;
using kernels::Queue;

// Uniform in [-1, 1), a multiple of 2^-23: Hashed in make_fixture.py.
double Hashed(uint64_t position, uint64_t stream) {
  uint32_t h = static_cast<uint32_t>(position * 2654435761u + stream * 40503u + 12345u);
  for (int round = 0; round < 2; ++round) {
    h ^= h >> 16;
    h *= 0x45D9F3Bu;
  }
  h ^= h >> 16;
  return std::ldexp(static_cast<double>(h >> 8), -23) - 1.0;
}

double ScaleOf(const std::string& name) {
  if (name == "attn_bank" || name == "qk_bank" || name == "vo_bank") return 0.3;
  if (name == "x0_lambdas") return 0.3;
  if (name == "mlp_bank") return 0.2;
  if (absl::EndsWith(name, "gate_bank")) return 0.5;
  if (absl::EndsWith(name, "c_fc") || absl::EndsWith(name, "fc_w")) return 0.25;
  if (absl::EndsWith(name, "c_proj") || absl::EndsWith(name, "proj_w")) return 0.15;
  if (name == "lm_head_w") return 0.3;
  if (absl::EndsWith(name, "qkvo_w") || name == "lm_head.weight") return 0.3;
  if (absl::EndsWith(name, "gate.weight")) return 0.5;
  return 1.5;  // embeddings
}

// As OFFSETS of make_unified_fixture.py.
std::vector<float> HashedBankScalars(const GptConfig& config, uint64_t stream) {
  const int layers = static_cast<int>(config.layers.size());
  std::vector<float> scalars;
  for (int i = 0; i < ScalarCount(config); ++i) {
    double offset = i < layers || (i < 3 * layers && (i - layers) % 2 == 1) ? 1.0 : 0.5;
    if (i == SkipScalar(config, 0)) offset = -0.5;
    scalars.push_back(static_cast<float>(0.3 * Hashed(i, stream) + offset));
  }
  return scalars;
}

// As OFFSETS of make_record7_fixture.py.
std::vector<float> HashedRecord7Scalars(const GptConfig& config) {
  const int layers = static_cast<int>(config.layers.size());
  std::vector<float> scalars;
  for (int i = 0; i < ScalarCount(config); ++i) {
    double offset = i < 3 * layers ? 1.0 : 0.5;
    if (i >= layers && i < 3 * layers && (i - layers) % 2 == 1) offset = 0;
    scalars.push_back(static_cast<float>(0.3 * Hashed(i, 0) + offset));
  }
  return scalars;
}

std::vector<float> HashedScalars(const GptConfig& config) {
  if (config.style == WeightStyle::kPerLayerBf16) return HashedRecord7Scalars(config);
  const int layers = static_cast<int>(config.layers.size());
  std::vector<float> scalars;
  for (int i = 0; i < ScalarCount(config); ++i) {
    double value = 0.3 * Hashed(i, 0);
    if (i < layers) {
      value -= 0.5;
    } else if (i < 3 * layers) {
      value += (i - layers) % 2 == 0 ? 1.0 : 0.0;
    } else if (i <= 5 * layers || (config.backout_layer >= 0 && i == BackoutLambda(config))) {
      value += 0.5;
    }
    scalars.push_back(static_cast<float>(value));
  }
  return scalars;
}

std::vector<int32_t> StreamOfSlots(int64_t first_slot, int64_t slots, int64_t shift,
                                   int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t slot = first_slot; slot < first_slot + slots; ++slot) {
    for (int64_t t = 0; t < kSlotTokens; ++t) {
      const double u = (Hashed(slot * (kSlotTokens + 1) + t + shift, 1000) + 1.0) / 2.0;
      tokens.push_back(static_cast<int32_t>(std::floor(u * static_cast<double>(vocab))));
    }
  }
  return tokens;
}

}  // namespace

GptConfig SmallConfig() {
  absl::StatusOr<GptConfig> config = MuonCustomSizingConfig(
      {.vocab_size = 96, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128, .layers = 12});
  CHECK(config.ok()) << config.status();
  return *std::move(config);
}

GptConfig SmallBackoutConfig() {
  absl::StatusOr<GptConfig> config = FixMuonLRConfig(
      {.vocab_size = 96, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128, .layers = 12});
  CHECK(config.ok()) << config.status();
  return *std::move(config);
}

GptConfig SmallUnifiedConfig() {
  absl::StatusOr<GptConfig> config = UnifiedConfig(
      {.vocab_size = 96, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128, .layers = 11});
  CHECK(config.ok()) << config.status();
  return *std::move(config);
}

GptConfig SmallRecord7Config() {
  absl::StatusOr<GptConfig> config = Record7Config(
      {.vocab_size = 96, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128, .layers = 16}, 96);
  CHECK(config.ok()) << config.status();
  config->window_block = 16;
  return *std::move(config);
}

void SetHashedWeights(const GptConfig& config, const ParameterArena& weights, Queue& queue) {
  for (size_t i = 0; i < weights.parameters().size(); ++i) {
    const kernels::Parameter& p = weights.parameters()[i];
    std::vector<float> values(p.spec.size());
    for (size_t j = 0; j < values.size(); ++j) {
      const float value = static_cast<float>(ScaleOf(p.spec.name) * Hashed(j, i));
      const bool f32 = p.spec.name == "x0_lambdas" || p.spec.name == "lm_head_w";
      values[j] = f32 ? value : kernels::RoundToBF16(value);
    }
    if (p.spec.name == "scalars") {
      values = config.style == WeightStyle::kBanks ? HashedBankScalars(config, i)
                                                   : HashedScalars(config);
    }
    if (p.spec.dtype == DType::kF32) {
      queue.Upload(values.data(), p.value);
    } else {
      std::vector<kernels::BF16> narrow;
      for (float value : values) narrow.push_back(kernels::ToBF16(value));
      queue.Upload(narrow.data(), p.value);
    }
  }
}

std::unique_ptr<ParameterArena> MakeWeights(const GptConfig& config, int64_t leaves) {
  auto weights = ParameterArena::Create(config, leaves, kernels::CpuBackend());
  CHECK(weights.ok()) << weights.status();
  return *std::move(weights);
}

std::vector<float> Download(kernels::Tensor f32, Queue& queue) {
  std::vector<float> values(f32.size());
  CHECK_EQ(f32.dtype(), DType::kF32);
  queue.Download(f32, values.data());
  queue.Synchronize();
  return values;
}

SmallPass::SmallPass(const GptConfig& config, int64_t first_slot, int64_t slots, bool train,
                     Queue& queue)
    : queue_(queue),
      gpt_(config,
           {.slots = slots, .slot_tokens = kSlotTokens, .max_boundaries = 6, .train = train}) {
  kernels::ArenaPlan plan;
  gpt_.Plan(plan, queue);
  const auto tokens = plan.Add("tokens", DType::kI32, {slots, kSlotTokens});
  const auto targets = plan.Add("targets", DType::kI32, {slots, kSlotTokens});
  const auto boundaries = plan.Add("boundaries", DType::kI32, {slots, 6});
  const auto losses = plan.Add("losses", DType::kF32, {slots, kSlotTokens});
  const int64_t half = config.head_dim / 2;
  const auto paired = plan.Add("paired boundaries", DType::kI32, {slots, 6});
  const auto loss_weights = plan.Add("loss weights", DType::kF32, {3});
  const int64_t positions = (HasPairedHeads(config) ? 2 : 1) * kSlotTokens;
  const bool f32 = config.style == WeightStyle::kPerLayerBf16;
  const DType table = f32 ? DType::kF32 : DType::kBF16;
  const auto cos = plan.Add("cos", table, {positions, half});
  const auto sin = plan.Add("sin", table, {positions, half});
  auto arena = kernels::Arena::Create(std::move(plan), kernels::CpuBackend());
  CHECK(arena.ok()) << arena.status();
  arena_ = *std::move(arena);
  gpt_.Bind(arena_);
  losses_ = arena_.Get(losses);
  input_.tokens = arena_.Get(tokens);
  input_.targets = arena_.Get(targets);
  input_.boundaries = arena_.Get(boundaries);
  const int64_t unit = config.window_block > 0 ? config.window_block : 8;
  input_.short_window_tokens = unit;
  input_.long_window_tokens = 3 * unit;
  input_.attention_scale = 0.3f;
  input_.cos = arena_.Get(cos);
  input_.sin = arena_.Get(sin);

  const int64_t vocab = config.vocab_size;
  queue.Upload(StreamOfSlots(first_slot, slots, 0, vocab).data(), input_.tokens);
  queue.Upload(StreamOfSlots(first_slot, slots, 1, vocab).data(), input_.targets);
  const int32_t documents[kSlots][6] = {{0, 30, 30, 71, 96, 96}, {0, 0, 50, 58, 96, 96}};
  queue.Upload(documents[first_slot], input_.boundaries);
  if (HasPairedHeads(config)) {
    input_.paired_boundaries = arena_.Get(paired);
    std::vector<int32_t> doubled(slots * 6);
    for (int64_t i = 0; i < slots * 6; ++i) doubled[i] = 2 * documents[first_slot + i / 6][i % 6];
    queue.Upload(doubled.data(), input_.paired_boundaries);
  }
  if (config.loss_weights > 0) {
    input_.loss_weights = arena_.Get(loss_weights);
    const float weights[] = {1.0f, 0.5f, 0.1875f};
    queue.Upload(weights, input_.loss_weights);
  }
  std::vector<float> frequencies(half, 0.0f);
  for (int64_t j = 0; j < half / 2; ++j) frequencies[j] = std::ldexp(1.0f, -static_cast<int>(j));
  const auto fill = [&](auto zero) {
    std::vector<decltype(zero)> cos_host(input_.cos.size()), sin_host(input_.sin.size());
    FillRotary(frequencies, cos_host, sin_host);
    queue.Upload(cos_host.data(), input_.cos);
    queue.Upload(sin_host.data(), input_.sin);
  };
  f32 ? fill(0.0f) : fill(kernels::BF16{});
}

std::vector<float> SmallPass::Loss(const ParameterArena& weights) {
  gpt_.PrepareWeights(weights.parameters(), queue_);
  gpt_.Loss(input_, weights.parameters(), losses_, queue_);
  return Download(losses_, queue_);
}

std::vector<float> SmallPass::LossGrad(const ParameterArena& weights, int64_t leaf_begin,
                                       bool finish) {
  gpt_.PrepareWeights(weights.parameters(), queue_);
  gpt_.LossGrad(input_, weights.parameters(), leaf_begin, losses_, queue_);
  if (finish) gpt_.FinishGradients(weights.parameters(), queue_);
  return Download(losses_, queue_);
}

}  // namespace model::testing
