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

// fill(begin, end) for pieces of [0, size), side by side: the 250 million numbers of a full model
// take seconds on one core, and a run should start at once. Pieces begin at even positions.
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

// The elements of a weight on the host, in its dtype: f32, or bf16, to which they are rounded.
class HostValues {
 public:
  explicit HostValues(const Parameter& parameter)
      : parameter_(parameter), bf16_(parameter.spec.dtype == kernels::DType::kBF16) {
    bf16_ ? rounded_.resize(parameter.spec.size()) : f32_.resize(parameter.spec.size());
  }

  int64_t size() const { return parameter_.spec.size(); }
  void Set(int64_t i, float value) {
    if (bf16_) {
      rounded_[i] = kernels::ToBF16(value);
    } else {
      f32_[i] = value;
    }
  }
  void Upload(kernels::Queue& queue) const {
    queue.Upload(bf16_ ? static_cast<const void*>(rounded_.data()) : f32_.data(), parameter_.value);
  }

 private:
  const Parameter& parameter_;
  const bool bf16_;
  std::vector<float> f32_;
  std::vector<kernels::BF16> rounded_;
};

// Standard deviation `deviation`, drawn in double.
void UploadNormal(const Stream& stream, double deviation, const Parameter& parameter,
                  kernels::Queue& queue) {
  HostValues values(parameter);
  FillInPieces(values.size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 2) {
      const double radius = deviation * std::sqrt(-2.0 * std::log(1.0 - stream.Uniform(i)));
      const double angle = 2.0 * std::numbers::pi * stream.Uniform(i + 1);
      values.Set(i, static_cast<float>(radius * std::cos(angle)));
      if (i + 1 < end) values.Set(i + 1, static_cast<float>(radius * std::sin(angle)));
    }
  });
  values.Upload(queue);
}

// As PyTorch draws into a bf16 tensor: of 16 elements in a row, j and j + 8 are a pair.
void UploadBF16Normal(const Stream& stream, double deviation, const Parameter& parameter,
                      kernels::Queue& queue) {
  const BF16Normal normal(static_cast<float>(deviation));
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
  HostValues values(parameter);
  FillInPieces(values.size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values.Set(i, i % period < count ? UniformAt(stream, bound, i) : 0.0f);
    }
  });
  values.Upload(queue);
}

// Bound of the uniform distribution with the standard deviation `deviation` dim^(-1/2).
double Bound(double deviation, int64_t dim) {
  return deviation * std::sqrt(3.0 / static_cast<double>(dim));
}

class Initializer {
 public:
  Initializer(const GptConfig& config, uint64_t seed, const std::vector<Parameter>& parameters,
              kernels::Queue& queue)
      : config_(config),
        layout_(LayoutOf(config)),
        seed_(seed),
        parameters_(parameters),
        queue_(queue) {}

  void Scalars() const {
    CHECK_EQ(parameters_[layout_.scalars].spec.name, "scalars");
    queue_.Upload(InitialScalars(config_).data(), parameters_[layout_.scalars].value);
    if (layout_.x0_lambdas < 0) return;
    const std::vector<float> x0(config_.layers.size(), config_.initial.scalars.x0);
    queue_.Upload(x0.data(), parameters_[layout_.x0_lambdas].value);
  }

  void Matrices() const {
    const double qkv = Bound(config_.initial.qkv, config_.dim);
    const double mlp = Bound(config_.initial.mlp, config_.dim);
    const int64_t square = config_.dim * config_.dim, hidden = config_.dim * config_.mlp_dim;
    for (const LayerParameters& layer : layout_.layers) {
      Uniform(layer.qkvo, qkv, 3 * square, 4 * square);
      Uniform(layer.c_fc, mlp, hidden, hidden);
    }
    Uniform(layout_.attn_bank, qkv, 3 * square, 4 * square);
    for (int bank : {layout_.qk_bank, layout_.vo_bank}) Uniform(bank, qkv, square, square);
    Uniform(layout_.mlp_bank, mlp, hidden, 2 * hidden);
  }

  void Tables() const {
    for (int index : layout_.value_embeds) Normal(index, config_.initial.value_embeddings);
    Head();
    Normal(layout_.embed, config_.initial.embedding);
    if (!config_.initial.embedding_is_head) return;
    kernels::TransposeCopy(parameters_[layout_.lm_head].value, parameters_[layout_.embed].value,
                           queue_);
  }

 private:
  void Head() const {
    const int head = layout_.lm_head;
    if (!config_.initial.head_in_bf16) return Normal(head, config_.initial.head);
    UploadBF16Normal(StreamOf(head), config_.initial.head, parameters_[head], queue_);
  }
  Stream StreamOf(int index) const { return {seed_, parameters_[index].spec.name}; }
  void Uniform(int index, double bound, int64_t count, int64_t period) const {
    if (index < 0 || bound == 0) return;
    UploadUniform(StreamOf(index), bound, count, period, parameters_[index], queue_);
  }
  void Normal(int index, double deviation) const {
    if (deviation == 0) return;
    UploadNormal(StreamOf(index), deviation, parameters_[index], queue_);
  }

  const GptConfig& config_;
  const ParameterLayout layout_;
  const uint64_t seed_;
  const std::vector<Parameter>& parameters_;
  kernels::Queue& queue_;
};

}  // namespace

std::vector<float> ScalarsOf(const GptConfig& config, const ScalarValues& values,
                             int64_t multiple) {
  std::vector<float> scalars(ScalarCount(config, multiple), 0.0f);
  const auto set = [&scalars](int place, float value) {
    if (place >= 0) scalars[place] = value;
  };
  const int layers = static_cast<int>(config.layers.size());
  const bool banks = config.storage == Storage::kBanks;
  for (int i = 0; i < layers; ++i) {
    if (!banks) {
      set(i, values.skip);
      set(X0Lambda(config, i), values.x0);
    }
    set(BlockLambda(config, i), values.stream);
    if (config.attention_factors) {
      set(WeightFactor(config, i), values.qkv_factor);
      set(WeightFactor(config, i) + 1, values.o_factor);
    }
    if (config.value_mix == ValueMix::kScalars) {
      set(AttentionLambda(config, i), values.value);
      set(AttentionLambda(config, i) + 1, values.value_embedding);
    }
  }
  set(SmearLambda(config), values.smear);
  set(BackoutLambda(config), config.backout_layer >= 0 ? values.backout : 0.0f);
  if (banks) set(SkipScalar(config, 0), values.skip);
  for (size_t i = ScalarCount(config); i < scalars.size(); ++i) scalars[i] = 1.0f;
  return scalars;
}

std::vector<float> InitialScalars(const GptConfig& config, int64_t multiple) {
  return ScalarsOf(config, config.initial.scalars, multiple);
}

void InitParameters(const GptConfig& config, uint64_t seed,
                    const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  for (const Parameter& parameter : parameters) kernels::FillZero(parameter.value, queue);
  const Initializer initializer(config, seed, parameters, queue);
  initializer.Scalars();
  initializer.Matrices();
  initializer.Tables();
  queue.Synchronize();
}

}  // namespace model
