#include "model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/weight.h"
#include "kernels/usable_cpus.h"
#include "model/bf16_normal.h"
#include "model/parameters.h"
#include "third_party/absl_compat/check.h"

namespace model {
namespace {

using kernels::Parameter;

// A stream of uniform numbers by position.
class Stream {
 public:
  Stream(uint64_t seed, const std::string& name) {
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    for (unsigned char c : name) hash = (hash ^ c) * 0x100000001B3u;
    start_ = Mix(seed) ^ hash;
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  double Uniform(uint64_t position) const {
    const uint64_t bits = Mix(start_ + (position + 1) * 0x9E3779B97F4A7C15u);
    return std::ldexp(static_cast<double>(bits >> 11), -53);
  }

  // The upper 8 bits of the number at a position.
  uint8_t Byte(uint64_t position) const {
    return static_cast<uint8_t>(std::ldexp(Uniform(position), 8));
  }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t start_;
};

// fill(begin, end) for pieces of [0, size), side by side: the record's 250 million numbers take
// seconds on one core, and a run should start at once. Pieces begin at even positions.
template <typename Fill>
void FillInPieces(int64_t size, const Fill& fill) {
  constexpr int64_t kWorthAThread = 1 << 16;
  const int64_t most = kernels::UsableCpus();
  const int64_t pieces = std::clamp<int64_t>(size / kWorthAThread, 1, most);
  const int64_t piece = (size / pieces + 2) / 2 * 2;
  std::vector<std::thread> threads;
  for (int64_t begin = piece; begin < size; begin += piece) {
    threads.emplace_back(fill, begin, std::min(begin + piece, size));
  }
  fill(0, std::min(piece, size));
  for (std::thread& thread : threads) thread.join();
}

// N(0, 1), drawn in double.
void UploadNormal(const Stream& stream, const Parameter& parameter, kernels::Queue& queue) {
  std::vector<kernels::BF16> values(parameter.spec.size());
  FillInPieces(values.size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 2) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - stream.Uniform(i)));
      const double angle = 2.0 * std::numbers::pi * stream.Uniform(i + 1);
      values[i] = kernels::ToBF16(static_cast<float>(radius * std::cos(angle)));
      if (i + 1 < end) {
        values[i + 1] = kernels::ToBF16(static_cast<float>(radius * std::sin(angle)));
      }
    }
  });
  queue.Upload(values.data(), parameter.value);
}

// As PyTorch draws into a bf16 tensor: of 16 elements in a row, j and j + 8 are a pair.
void UploadBF16Normal(const Stream& stream, float deviation, const Parameter& parameter,
                      kernels::Queue& queue) {
  const BF16Normal normal(deviation);
  std::vector<kernels::BF16> values(parameter.spec.size());
  FillInPieces(values.size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / 16 * 16 + i % 8;
      const uint8_t a = stream.Byte(first), b = stream.Byte(first + 8);
      values[i] = i % 16 < 8 ? normal.Cosine(a, b) : normal.Sine(a, b);
    }
  });
  queue.Upload(values.data(), parameter.value);
}

// Uniform in [-bound, bound); bf16 rounding may reach the ends.
float UniformAt(const Stream& stream, double bound, int64_t i) {
  // The upper 24 bits only: exact in f32, so that rounding to it never reaches +bound.
  const double u = std::ldexp(std::floor(std::ldexp(stream.Uniform(i), 24)), -24);
  return static_cast<float>((2.0 * u - 1.0) * bound);
}

// The first `count` of every `period` elements uniform, the rest zero.
void UploadUniform(const Stream& stream, double bound, int64_t count, int64_t period,
                   const Parameter& parameter, kernels::Queue& queue) {
  const int64_t size = parameter.spec.size();
  const bool bf16 = parameter.spec.dtype == kernels::DType::kBF16;
  std::vector<float> f32(bf16 ? 0 : size);
  std::vector<kernels::BF16> rounded(bf16 ? size : 0);
  FillInPieces(size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = i % period < count ? UniformAt(stream, bound, i) : 0.0f;
      if (bf16) {
        rounded[i] = kernels::ToBF16(value);
      } else {
        f32[i] = value;
      }
    }
  });
  queue.Upload(bf16 ? static_cast<const void*>(rounded.data()) : f32.data(), parameter.value);
}

void InitLayers(const GptConfig& config, const ParameterLayout& layout, uint64_t seed,
                const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  const double bound = std::sqrt(3.0 / (4.0 * static_cast<double>(config.dim)));
  std::vector<int> tables = layout.value_embeds;
  tables.push_back(layout.embed);
  for (int index : tables) {
    UploadNormal(Stream(seed, parameters[index].spec.name), parameters[index], queue);
  }
  for (const LayerParameters& layer : layout.layers) {
    for (int index : {layer.qkvo, layer.c_fc}) {
      if (index < 0) continue;
      const Parameter& p = parameters[index];
      const int64_t count = index == layer.qkvo ? 3 * config.dim * config.dim : p.spec.size();
      UploadUniform(Stream(seed, p.spec.name), bound, count, p.spec.size(), p, queue);
    }
  }
}

void InitBanks(const GptConfig& config, const ParameterLayout& layout, uint64_t seed,
               const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  const auto stream = [&](int index) { return Stream(seed, parameters[index].spec.name); };
  const double bound = std::sqrt(3.0 / static_cast<double>(config.dim));
  const int64_t square = config.dim * config.dim, mlp = config.dim * config.mlp_dim;
  if (config.split_attention_banks) {
    for (int bank : {layout.qk_bank, layout.vo_bank}) {
      const int64_t size = parameters[bank].spec.size();
      UploadUniform(stream(bank), bound / 2, size, size, parameters[bank], queue);
    }
  } else {
    UploadUniform(stream(layout.attn_bank), bound, 3 * square, 4 * square,
                  parameters[layout.attn_bank], queue);
  }
  UploadUniform(stream(layout.mlp_bank), bound / 2, mlp, 2 * mlp, parameters[layout.mlp_bank],
                queue);
  UploadBF16Normal(stream(layout.lm_head), 0.005f, parameters[layout.lm_head], queue);
  kernels::TransposeCopy(parameters[layout.lm_head].value, parameters[layout.embed].value, queue);
}

}  // namespace

std::vector<float> InitialScalars(const GptConfig& config, int64_t multiple) {
  std::vector<float> scalars(ScalarCount(config, multiple), 0.0f);
  const int layers = static_cast<int>(config.layers.size());
  const bool banks = config.style == WeightStyle::kBanks;
  const float skip = config.style == WeightStyle::kPerLayerBf16 ? 1.0f : -1.5f;
  for (int i = 0; i < layers; ++i) {
    if (banks) {
      scalars[BlockLambda(config, i)] = 1.1f;
      scalars[WeightFactor(config, i)] = 0.5f;
      scalars[WeightFactor(config, i) + 1] = 1.0f;
      continue;
    }
    scalars[i] = skip;
    scalars[BlockLambda(config, i)] = 1.0f;
    scalars[AttentionLambda(config, i)] = 0.5f;
    scalars[AttentionLambda(config, i) + 1] = 0.5f;
  }
  if (config.backout_layer >= 0) scalars[BackoutLambda(config)] = 0.5f;
  if (banks) scalars[SkipScalar(config, 0)] = -1.5f;
  for (size_t i = ScalarCount(config); i < scalars.size(); ++i) scalars[i] = 1.0f;
  return scalars;
}

void InitParameters(const GptConfig& config, uint64_t seed,
                    const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  const ParameterLayout layout = LayoutOf(config);
  for (const Parameter& parameter : parameters) kernels::FillZero(parameter.value, queue);
  CHECK_EQ(parameters[layout.scalars].spec.name, "scalars");
  queue.Upload(InitialScalars(config).data(), parameters[layout.scalars].value);
  const auto init = config.style == WeightStyle::kBanks ? InitBanks : InitLayers;
  init(config, layout, seed, parameters, queue);
  queue.Synchronize();
}

}  // namespace model
