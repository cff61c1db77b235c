#include "model/testing.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/init.h"
#include "model/rotary.h"
#include "third_party/absl_compat/check.h"

namespace model::testing {
namespace {

using kernels::DType;
using kernels::Queue;

// Uniform in [-1, 1), a multiple of 2^-23: Hashed of tools/recipes/testdata/make_fixture.py.
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

// What Hashed noise is added to: as the fixtures of tools/recipes/testdata have it.
ScalarValues ScalarOffsets(const GptConfig& config) {
  return {.skip = config.skip_weight == SkipWeight::kPlain ? 1.0f : -0.5f,
          .stream = 1,
          .x0 = 0,
          .value = 0.5f,
          .value_embedding = 0.5f,
          .qkv_factor = 0.5f,
          .o_factor = 1,
          .smear = 0.5f,
          .backout = 0.5f};
}

std::vector<float> HashedScalars(const GptConfig& config, uint64_t stream) {
  std::vector<float> scalars = ScalarsOf(config, ScalarOffsets(config));
  for (size_t i = 0; i < scalars.size(); ++i) {
    scalars[i] = static_cast<float>(0.3 * Hashed(i, stream) + scalars[i]);
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

// What the toys have in common: no layers yet, and no part chosen.
GptConfig ToySizes() {
  GptConfig config;
  config.vocab_size = 96;
  config.dim = 32;
  config.mlp_dim = 128;
  config.heads = 2;
  config.head_dim = 16;
  config.gate_features = 12;
  config.value_embeddings = 3;
  return config;
}

}  // namespace

GptConfig PerLayerToy() {
  GptConfig config = ToySizes();
  config.layers.resize(8);
  config.layers[0].attention = config.layers[0].mlp = false;
  config.layers[1].value_embedding = 1;
  config.layers[2].value_embedding = 2;
  config.layers[3].attention = false;
  for (int i : {2, 5}) config.layers[i].long_window = true;
  for (int i : {4, 5, 6}) config.layers[i].skip_from = 7 - i;
  config.layers[6].value_embedding = 0;
  config.layers[7].value_embedding = 1;
  config.initial = {.qkv = 0.5,
                    .mlp = 0.5,
                    .value_embeddings = 1,
                    .embedding = 1,
                    .scalars = {.skip = -1, .value = 0.5f, .value_embedding = 0.5f}};
  config.smear = config.attention_gate = true;
  config.softcap = 20;
  config.softcap_temperature = 5;
  config.fp8_head = true;
  config.fp8_scales = {.w = 1.0 / 512, .grad = 1.0 / 448};
  return config;
}

GptConfig BackoutToy() {
  GptConfig config = PerLayerToy();
  config.backout_layer = 5;
  config.initial.scalars.backout = 0.5f;
  return config;
}

GptConfig BanksToy() {
  GptConfig config = ToySizes();
  config.layers.resize(7);
  for (int i : {0, 2}) config.layers[i].paired_heads = true;
  for (int i : {3, 6}) config.layers[i].long_window = config.layers[i].key_offset = true;
  config.layers[0].value_embedding = 1;
  config.layers[1].value_embedding = 2;
  config.layers[4].attention = false;
  config.layers[4].skip_from = 3;
  config.layers[6].value_embedding = 0;
  config.backout_layer = 5;
  config.storage = Storage::kBanks;
  config.matrix_dtype = kernels::DType::kBF16;
  config.mlp_layout = MlpLayout::kHiddenDim;
  config.head_layout = HeadLayout::kDimVocab;
  config.initial = {.qkv = 1,
                    .mlp = 0.5,
                    .head = 0.01,
                    .embedding_is_head = true,
                    .scalars = {.skip = -1, .qkv_factor = 0.5f, .backout = 0.5f}};
  config.smear = config.attention_gate = config.attention_factors = true;
  config.rotary_pairs = RotaryPairs::kNeighbours;
  config.value_mix = ValueMix::kGate;
  config.skip_weight = SkipWeight::kGate;
  config.softcap = 20;
  config.softcap_temperature = 5;
  config.softcap_shift = 3;
  config.loss_weights = 3;
  config.fp8_head = true;
  config.fp8_scales = {.x = 100.0 / 448, .w = 1.0 / 256, .grad = 1.0 / 512};
  return config;
}

void SetHashedWeights(const GptConfig& config, const ParameterArena& weights, Queue& queue) {
  for (size_t i = 0; i < weights.parameters().size(); ++i) {
    const kernels::Parameter& p = weights.parameters()[i];
    std::vector<float> values(p.spec.size());
    for (size_t j = 0; j < values.size(); ++j) {
      const float value = static_cast<float>(ScaleOf(p.spec.name) * Hashed(j, i));
      const bool exact = p.spec.name == "x0_lambdas" || p.spec.name == "lm_head_w";
      values[j] = exact ? value : kernels::RoundToBF16(value);
    }
    if (p.spec.name == "scalars") values = HashedScalars(config, i);
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
  const auto cos = plan.Add("cos", config.rotary_dtype, {positions, half});
  const auto sin = plan.Add("sin", config.rotary_dtype, {positions, half});
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
  config.rotary_dtype == DType::kF32 ? fill(0.0f) : fill(kernels::BF16{});
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

void ExpectSumOfTwoLeaves(const kernels::Parameter& sum, const kernels::Parameter& apart,
                          kernels::Queue& queue) {
  const std::vector<float> leaves = Download(apart.grad, queue);
  const std::vector<float> both = Download(sum.grad, queue);
  double square = 0, error = 0;
  for (size_t i = 0; i < both.size(); ++i) {
    square += double{both[i]} * both[i];
    error += std::pow(double{leaves[i]} + leaves[both.size() + i] - both[i], 2);
  }
  EXPECT_GT(square, 0) << sum.spec.name;
  EXPECT_LT(std::sqrt(error / square), 1e-5) << sum.spec.name;
}

}  // namespace model::testing
