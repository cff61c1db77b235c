#include "tools/export_hf/test_model.h"

#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/token_map.h"
#include "model/parameters.h"
#include "third_party/absl_compat/check.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

// Noise of this weight is uniform in `mean` +- `half`; both are of few bits.
struct Noise {
  float mean = 0;
  float half = 0;
};

Noise NoiseOf(const kernels::ParameterSpec& spec) {
  if (absl::StartsWith(spec.name, "scalars") || absl::StartsWith(spec.name, "x0_lambdas")) {
    return {.mean = 0.75f, .half = 0.5f};
  }
  if (absl::StrContains(spec.name, "embed")) return {.half = 1};
  if (absl::StrContains(spec.name, "gate")) return {.half = 0.5f};
  if (absl::StartsWith(spec.name, "lm_head")) return {.half = 0.5f};
  // Attention takes means of many values; as large as the rest it is with these.
  for (const char* label : {"attn", "qk", "vo"}) {
    if (spec.label == label) return {.half = 0.5f};
  }
  return {.half = 0.125f};  // keeps the size of an input of 128 features
}

}  // namespace

SafetensorsFile TestModel(const std::string& record) {
  const int64_t vocab_size = PaddedVocab(data::TokenMap::ByteVocabulary().vocab_size());
  const absl::StatusOr<Recipe> recipe = FindRecipe(record, "demo", vocab_size);
  CHECK(recipe.ok()) << recipe.status();
  SafetensorsFile file;
  uint32_t state = 1;
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(recipe->model)) {
    const Noise noise = NoiseOf(spec);
    HostTensor& tensor = file.tensors[spec.name];
    tensor.dtype = spec.dtype;
    tensor.shape = spec.shape;
    const auto size = static_cast<int64_t>(kernels::SizeOf(spec.dtype));
    tensor.bytes.resize(spec.size() * size);
    for (int64_t i = 0; i < spec.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const float unit = std::ldexp(static_cast<float>(state >> 16), -15) - 1;
      const float value = noise.mean + noise.half * unit;
      const kernels::BF16 rounded = kernels::ToBF16(value);
      const void* from = &value;
      if (spec.dtype == kernels::DType::kBF16) from = &rounded;
      std::memcpy(&tensor.bytes[i * size], from, size);
    }
  }
  const int64_t total = recipe->schedules.run.total();
  file.metadata = {{"format", "pt"},
                   {"record", record},
                   {"preset", "demo"},
                   {"vocab_size", absl::StrCat(vocab_size)},
                   {"step", absl::StrCat(total / 2)},
                   {"total_steps", absl::StrCat(total)},
                   {"schedule_extension", "recipe"},
                   {"tokens", "gpt2_bytes"}};
  return file;
}

}  // namespace tools
