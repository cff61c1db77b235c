// The model of the record of 2026-01-18.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "model/bf16_normal.h"
#include "model/gpt.h"
#include "model/init.h"
#include "model/parameters.h"
#include "model/testing.h"
#include "tools/recipes/recipe.h"
#include "tools/recipes/small_model.h"

namespace tools {
namespace {

using model::testing::MakeWeights;
using model::testing::SmallPass;

model::GptConfig RecordConfig() { return FindRecipe("unified_optimizers", "full", 50304)->model; }

std::vector<float> Values(const kernels::Parameter& parameter) {
  std::vector<float> values;
  for (int64_t i = 0; i < parameter.spec.size(); ++i) {
    values.push_back(parameter.spec.dtype == kernels::DType::kF32
                         ? parameter.value.f32()[i]
                         : kernels::ToFloat(parameter.value.bf16()[i]));
  }
  return values;
}

class BanksTest : public ::testing::Test {
 protected:
  const model::GptConfig config_ = SmallModel("unified_optimizers");
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
};

TEST(Banks, UO_01_UO_02_UO_03_LabelsShapesAndViews) {
  EXPECT_EQ(RecordConfig().vocab_size, 50304);
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(RecordConfig());
  std::vector<std::string> labels;
  std::map<std::string, kernels::ParameterSpec> by_label;
  int64_t total = 0;
  for (const kernels::ParameterSpec& spec : specs) {
    labels.push_back(spec.label);
    by_label[spec.label] = spec;
    total += spec.size();
  }
  EXPECT_EQ(labels, (std::vector<std::string>{"attn", "mlp", "scalars", "ve0", "ve1", "ve2",
                                              "smear_gate", "skip_gate", "attn_gate_bank",
                                              "ve_gate_bank", "x0_lambdas", "lm_head", "embed"}));
  const kernels::ParameterSpec& attn = by_label.at("attn");
  EXPECT_EQ(attn.shape, (std::vector<int64_t>{10, 3072, 768}));
  EXPECT_EQ(attn.matrices, 40);
  EXPECT_EQ(attn.rows, 768);
  EXPECT_EQ(attn.cols, 768);
  const kernels::ParameterSpec& mlp = by_label.at("mlp");
  EXPECT_EQ(mlp.shape, (std::vector<int64_t>{12, 2, 3072, 768}));
  EXPECT_EQ(mlp.matrices, 24);
  EXPECT_EQ(mlp.rows, 3072);
  EXPECT_EQ(mlp.cols, 768);
  EXPECT_EQ(by_label.at("lm_head").shape, (std::vector<int64_t>{768, 50304}));
  EXPECT_EQ(by_label.at("embed").shape, (std::vector<int64_t>{50304, 768}));
  EXPECT_EQ(total, 273'384'575);  // without padding of the scalars
  for (const kernels::ParameterSpec& spec : specs) {
    const bool f32 = spec.label == "scalars" || spec.label == "x0_lambdas";
    EXPECT_EQ(spec.dtype, f32 ? kernels::DType::kF32 : kernels::DType::kBF16) << spec.name;
  }
}

TEST(Banks, UO_04_EntriesAndLayers) {
  const model::GptConfig config = RecordConfig();
  EXPECT_EQ(model::AttentionLayers(config), (std::vector<int>{0, 1, 2, 3, 4, 5, 7, 8, 9, 10}));
  EXPECT_FALSE(config.layers[6].attention);
  EXPECT_EQ(model::ValueEmbeddingLayers(config), (std::vector<int>{0, 1, 8, 9, 10}));
  EXPECT_EQ(model::MlpSlots(config), 12);
}

TEST_F(BanksTest, UO_05_UO_06_InitialWeights) {
  model::GptConfig config = config_;
  config.dim = 64;
  config.head_dim = 32;
  config.mlp_dim = 256;
  const auto weights = MakeWeights(config, 0);
  model::InitParameters(config, 7, weights->parameters(), *queue_);
  const double bound = std::sqrt(3.0 / 64);  // 0.0625 at dim 768
  EXPECT_EQ(std::sqrt(3.0 / 768), 0.0625);
  const std::vector<float> attn = Values(weights->Find("attn_bank").value());
  const std::vector<float> mlp = Values(weights->Find("mlp_bank").value());
  const auto check = [](const std::vector<float>& values, int64_t period, int64_t random,
                        double most) {
    double square = 0, largest = 0;
    int64_t drawn = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % period >= random) {
        ASSERT_EQ(values[i], 0.0f) << i;
        continue;
      }
      square += double{values[i]} * values[i];
      largest = std::max(largest, std::abs(double{values[i]}));
      ++drawn;
    }
    // Uniform: the mean square is a third of the bound's; rounding to bf16 may reach the bound.
    EXPECT_NEAR(square / drawn, most * most / 3, 0.03 * most * most / 3);
    EXPECT_LE(largest, most * (1 + kernels::testing::kBf16Roundoff));
    EXPECT_GT(largest, most * 0.99);
  };
  check(attn, 4 * 64 * 64, 3 * 64 * 64, bound);   // O is zero
  check(mlp, 2 * 64 * 256, 64 * 256, bound / 2);  // c_proj is zero, slot 11 is not
  const kernels::Parameter head = weights->Find("lm_head.weight").value();
  const kernels::Parameter embed = weights->Find("embed.weight").value();
  double square = 0;
  for (int64_t v = 0; v < 96; ++v) {
    for (int64_t d = 0; d < 64; ++d) {
      ASSERT_EQ(embed.value.bf16()[v * 64 + d], head.value.bf16()[d * 96 + v]);
      square += std::pow(kernels::ToFloat(head.value.bf16()[d * 96 + v]), 2);
    }
  }
  EXPECT_NEAR(std::sqrt(square / (96 * 64)), 0.004968, 0.0002);  // 4 sd of 6,144 draws
  for (const char* name : {"value_embeds.1.weight", "smear_gate.weight", "skip_gate.weight",
                           "attn_gate_bank", "ve_gate_bank", "x0_lambdas"}) {
    for (float value : Values(weights->Find(name).value())) ASSERT_EQ(value, 0.0f) << name;
  }
}

// The head's draw is one in bf16: see BF16Normal. 3.2 million draws: the deviation within 5 sd of
// 4e-4 of itself, the kurtosis within 5 sd of 0.0026, no value that cannot come out, and all that
// can, of which the rarest is expected 24 times.
TEST_F(BanksTest, HeadAndEmbeddingAreDrawnInBF16) {
  model::GptConfig config = config_;
  config.vocab_size = 50304;
  config.dim = 64;
  config.head_dim = 32;
  config.mlp_dim = 256;
  const auto weights = MakeWeights(config, 0);
  model::InitParameters(config, 1, weights->parameters(), *queue_);
  std::map<float, double> counts;
  double square = 0, fourth = 0;
  const std::vector<float> head = Values(weights->Find("lm_head.weight").value());
  for (const float value : head) {
    ++counts[value];
    square += std::pow(value, 2);
    fourth += std::pow(value, 4);
  }
  const auto n = static_cast<double>(head.size());
  EXPECT_NEAR(std::sqrt(square / n), 0.00496813, 1e-5);
  EXPECT_NEAR(n * fourth / (square * square), 2.9223, 0.013);
  const model::BF16Normal normal(0.005f);
  std::map<float, double> possible;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      possible[kernels::ToFloat(normal.Cosine(a, b))] = 0;
      possible[kernels::ToFloat(normal.Sine(a, b))] = 0;
    }
  }
  EXPECT_EQ(counts.size(), possible.size());
  for (const auto& [value, count] : counts) EXPECT_TRUE(possible.contains(value)) << value;
}

// At the start each layer leaves the stream as it is but for its factor, so that the stream is
// x0 1.1^11 with what the skip connection adds at layer 6.
TEST_F(BanksTest, UO_05_LayersStartAsScalings) {
  const auto weights = MakeWeights(config_, 0);
  model::InitParameters(config_, 3, weights->parameters(), *queue_);
  SmallPass pass(config_, 0, 2, false, *queue_);
  pass.Loss(*weights);
  const double skip = 1 / (1 + std::exp(1.5));  // gates of zero weights are 2 sigmoid(0) = 1
  double stream = 1, saved = 0, backout = 0;
  for (int i = 0; i < 11; ++i) {
    if (i == 6) stream += skip * saved;
    stream *= 1.1;
    if (i == 3) saved = stream;
    if (i == 7) backout = 0.5 * stream;
  }
  const kernels::BF16* got = pass.gpt().FinalStream().bf16();
  const kernels::BF16* table = weights->Find("embed.weight").value().value.bf16();
  for (int64_t row = 0; row < 2 * model::testing::kSlotTokens; ++row) {
    const kernels::BF16* e = table + 32 * pass.input().tokens.i32()[row];
    double square = 0;
    for (int j = 0; j < 32; ++j) square += std::pow(kernels::ToFloat(e[j]), 2) / 32;
    for (int j = 0; j < 32; ++j) {
      const double want =
          (stream - backout) * kernels::ToFloat(e[j]) / std::sqrt(square + 1.1920929e-7);
      // Rounded to bf16 at x0, in eleven layers, and at the skip connection and the backout: 14
      // times, by half of the unit roundoff on average.
      ASSERT_NEAR(kernels::ToFloat(got[32 * row + j]), want,
                  14 * kernels::testing::kBf16Roundoff / 2 * std::abs(want));
    }
  }
}

TEST(Banks, UO_07_Scalars) {
  const model::GptConfig config = RecordConfig();
  EXPECT_EQ(model::ScalarCount(config), 36);
  EXPECT_EQ(model::ScalarCount(config, 8), 40);
  const std::vector<float> scalars = model::InitialScalars(config, 8);
  for (int i = 0; i < 11; ++i) {
    EXPECT_EQ(scalars[i], 1.1f);
    EXPECT_EQ(scalars[11 + 2 * i], 0.5f);
    EXPECT_EQ(scalars[12 + 2 * i], 1.0f);
  }
  EXPECT_EQ(scalars[33], 0.0f);
  EXPECT_EQ(model::SmearLambda(config), 33);
  EXPECT_EQ(scalars[34], 0.5f);
  EXPECT_EQ(model::BackoutLambda(config), 34);
  EXPECT_EQ(scalars[35], -1.5f);
  EXPECT_EQ(model::SkipScalar(config, 6), 35);
  for (int i = 36; i < 40; ++i) EXPECT_EQ(scalars[i], 1.0f);
}

// UO-01: a loss of ln(classes) at the start, but for the few thousandths that 0.005 N(0, 1) makes.
TEST_F(BanksTest, UO_01_InitialLossIsLogVocabulary) {
  const auto weights = MakeWeights(config_, 1);
  model::InitParameters(config_, 3, weights->parameters(), *queue_);
  double mean = 0;
  const std::vector<float> losses = SmallPass(config_, 0, 2, false, *queue_).Loss(*weights);
  for (float loss : losses) mean += loss / static_cast<double>(losses.size());
  EXPECT_NEAR(mean, std::log(96.0), 0.01);
}

}  // namespace
}  // namespace tools
