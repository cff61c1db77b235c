// The models of the records of 2025-09-23 and 2025-10-27, which has a backout besides.
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "model/config.h"
#include "model/gpt.h"
#include "model/init.h"
#include "model/parameters.h"
#include "model/testing.h"
#include "tools/recipes/recipe.h"
#include "tools/recipes/small_model.h"

namespace tools {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using model::GptConfig;
using model::testing::Download;
using model::testing::kSlotTokens;
using model::testing::MakeWeights;
using model::testing::SmallPass;

GptConfig RecordConfig() { return FindRecipe("muon_custom_sizing", "full", 50304)->model; }
GptConfig RecordWithBackout() { return FindRecipe("fix_muon_lr", "full", 50304)->model; }

TEST(Config, T1_01_PaddedVocabulary) {
  EXPECT_EQ(RecordConfig().vocab_size, 50304);
  EXPECT_EQ(RecordConfig().vocab_size - 50257, 47);
  EXPECT_EQ(RecordConfig().vocab_size % 128, 0);
}

TEST(Config, T1_03_DenseParameters) {
  EXPECT_EQ(model::HiddenMatrixParameters(RecordConfig()), 75'497'472);
  EXPECT_EQ(model::DenseParametersPerToken(RecordConfig()), 114'130'944);
}

TEST(Config, T1_04_FlopsPerToken) {
  EXPECT_EQ(model::ForwardFlopsPerToken(RecordConfig()), 228'261'888);
  EXPECT_EQ(model::TrainingFlopsPerToken(RecordConfig()), 684'785'664);
}

TEST(Config, T1_08_ScalarCount) {
  const GptConfig config = RecordConfig();
  for (int ranks : {1, 2, 4, 8}) EXPECT_EQ(model::ScalarCount(config, ranks), 72) << ranks;
  EXPECT_EQ(model::ScalarCount(config, 16), 80);
  EXPECT_EQ(model::ScalarCount(config), 72);
  const GptConfig b = RecordWithBackout();
  for (int ranks : {1, 2}) EXPECT_EQ(model::ScalarCount(b, ranks), 62) << ranks;
  for (int ranks : {4, 8, 16}) EXPECT_EQ(model::ScalarCount(b, ranks), 64) << ranks;
}

TEST(Config, FixMuonLRIsTheRecordBeforeWithABackout) {
  const GptConfig a = RecordConfig(), b = RecordWithBackout();
  EXPECT_EQ(a.backout_layer, -1);
  EXPECT_EQ(b.backout_layer, 8);
  EXPECT_EQ(model::SmearLambda(b), 60);
  EXPECT_EQ(model::BackoutLambda(b), 61);
  EXPECT_EQ(model::HiddenMatrixParameters(b), model::HiddenMatrixParameters(a));
  EXPECT_EQ(model::TrainingFlopsPerToken(b), model::TrainingFlopsPerToken(a));
}

TEST(Config, PlacesOfScalars) {
  const GptConfig config = RecordConfig();
  EXPECT_EQ(model::SkipScalar(config, 6), 0);
  EXPECT_EQ(model::SkipScalar(config, 10), 4);
  EXPECT_EQ(model::BlockLambda(config, 0), 12);
  EXPECT_EQ(model::BlockLambda(config, 11), 34);
  EXPECT_EQ(model::AttentionLambda(config, 0), 36);
  EXPECT_EQ(model::AttentionLambda(config, 11), 58);
  EXPECT_EQ(model::SmearLambda(config), 60);
}

TEST(Config, T1_09_T1_10_T1_11_T1_12_LayerTable) {
  const GptConfig config = RecordConfig();
  ASSERT_EQ(config.layers.size(), 12u);
  const std::set<int> without_attention = {0, 7}, long_window = {4, 11};
  const int value_embedding[12] = {-1, 1, 2, -1, -1, -1, -1, -1, -1, 0, 1, 2};
  const int skip_from[12] = {-1, -1, -1, -1, -1, -1, 5, 4, 3, 2, 1, -1};
  for (int i = 0; i < 12; ++i) {
    const model::LayerConfig& layer = config.layers[i];
    EXPECT_EQ(layer.attention, !without_attention.contains(i)) << i;
    EXPECT_EQ(layer.mlp, i != 0) << i;
    EXPECT_EQ(layer.executed(), i != 0) << i;
    EXPECT_EQ(layer.long_window, long_window.contains(i)) << i;
    EXPECT_EQ(layer.value_embedding, value_embedding[i]) << i;
    EXPECT_EQ(layer.skip_from, skip_from[i]) << i;
  }
}

TEST(Config, T1_25_HeadScales) {
  const kernels::HeadPrecision precision = model::TrainingHeadPrecision(RecordConfig());
  EXPECT_TRUE(precision.fp8);
  EXPECT_FLOAT_EQ(precision.x_scale, 0.0618589574f);
  EXPECT_EQ(precision.w_scale, 0.001953125f);
  EXPECT_FLOAT_EQ(precision.grad_scale, 0.00223214286f);
}

TEST(Parameters, T1_02_Counts) {
  const GptConfig config = RecordConfig();
  std::map<std::string, int64_t> elements, count;
  int64_t total = 0;
  for (const ParameterSpec& spec : model::ParameterSpecs(config)) {
    elements[spec.label] += spec.size();
    ++count[spec.label];
    total += spec.size();
    int64_t stored = 1;
    for (int64_t dim : spec.shape) stored *= dim;
    EXPECT_EQ(stored, spec.size()) << spec.name;
  }
  EXPECT_EQ(total, 268'665'636);
  const std::map<std::string, int64_t> want = {
      {"embed", 38'633'472},   {"value_embed", 115'900'416},
      {"lm_head", 38'633'472}, {"attn", 23'592'960},
      {"mlp", 51'904'512},     {"attn_gate", 720},
      {"smear_gate", 12},      {"scalars", 72}};
  EXPECT_EQ(elements, want);
  EXPECT_EQ(count["attn"], 10);
  EXPECT_EQ(count["mlp"], 22);
  EXPECT_EQ(count["attn_gate"], 10);
}

// T1-02 counts the scalars as they are padded for 8 ranks.
TEST(Parameters, T1_02_CountsWithBackout) {
  const GptConfig config = RecordWithBackout();
  int64_t total = 0;
  for (const ParameterSpec& spec : model::ParameterSpecs(config)) total += spec.size();
  EXPECT_EQ(total - model::ScalarCount(config) + model::ScalarCount(config, 8), 268'665'628);
}

TEST(Parameters, OrderAndNames) {
  const GptConfig config = RecordConfig();
  const std::vector<ParameterSpec> specs = model::ParameterSpecs(config);
  const char* first[] = {"scalars",
                         "embed.weight",
                         "smear_gate.weight",
                         "value_embeds.0.weight",
                         "value_embeds.1.weight",
                         "value_embeds.2.weight",
                         "blocks.1.attn.qkvo_w",
                         "blocks.1.attn.attn_gate.weight",
                         "blocks.1.mlp.c_fc",
                         "blocks.1.mlp.c_proj",
                         "blocks.2.attn.qkvo_w"};
  for (size_t i = 0; i < std::size(first); ++i) EXPECT_EQ(specs[i].name, first[i]);
  EXPECT_EQ(specs.back().name, "lm_head.weight");
  const model::ParameterLayout layout = model::LayoutOf(config);
  EXPECT_EQ(specs[layout.layers[7].c_fc].name, "blocks.7.mlp.c_fc");
  EXPECT_EQ(layout.layers[7].qkvo, -1);
  EXPECT_EQ(layout.layers[0].c_fc, -1);
}

// T1-06: the stored [dim, 4 dim] is seen as Q, K, V, O one after the other.
TEST(Parameters, T1_06_QkvoIsFourMatrices) {
  const GptConfig config = RecordConfig();
  const ParameterSpec spec = model::ParameterSpecs(config)[model::LayoutOf(config).layers[1].qkvo];
  EXPECT_EQ(spec.shape, (std::vector<int64_t>{768, 3072}));
  EXPECT_EQ(spec.matrices, 4);
  EXPECT_EQ(spec.rows, 768);
  EXPECT_EQ(spec.cols, 768);
  // Element (rho, c) of the stored shape is element (4 rho + c / 768, c % 768) of the stack.
  const int64_t rho = 192, c = 800;
  EXPECT_EQ(rho * 3072 + c, (4 * rho + c / 768) * spec.cols + c % 768);
}

class InitTest : public ::testing::Test {
 protected:
  static GptConfig Config() { return FindRecipe("muon_custom_sizing", "full", 96)->model; }
  std::unique_ptr<model::ParameterArena> Init(uint64_t seed) {
    auto arena = model::ParameterArena::Create(Config(), 0, kernels::CpuBackend()).value();
    model::InitParameters(Config(), seed, arena->parameters(), *queue_);
    return arena;
  }
  std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
};

TEST_F(InitTest, T1_05_Bounds) {
  const std::unique_ptr<model::ParameterArena> arena = Init(1);
  const float bound = 1.0f / 32;
  for (const kernels::Parameter& p : arena->parameters()) {
    const bool hidden = p.spec.label == "attn" || p.spec.name.ends_with("c_fc");
    if (hidden) {
      const int64_t drawn = p.spec.label == "attn" ? 3 * 768 * 768 : p.spec.size();
      double sum = 0, square = 0, largest = 0;
      for (int64_t i = 0; i < drawn; ++i) {
        const double value = p.value.f32()[i];
        sum += value, square += value * value, largest = std::max(largest, std::abs(value));
      }
      EXPECT_LE(largest, bound) << p.spec.name;
      EXPECT_GT(largest, 0.9999 * bound) << p.spec.name;
      // 1.8 million draws: mean within 5 sd of 0, second moment within 1 % of bound^2 / 3.
      EXPECT_NEAR(sum / drawn, 0, 5 * 0.0180422 / std::sqrt(drawn));
      EXPECT_NEAR(std::sqrt(square / drawn), 0.0180422, 0.00018);
      for (int64_t i = drawn; i < p.spec.size(); ++i) ASSERT_EQ(p.value.f32()[i], 0.0f);
    } else if (p.spec.name.ends_with("c_proj")) {
      for (int64_t i = 0; i < p.spec.size(); ++i) ASSERT_EQ(p.value.f32()[i], 0.0f);
    } else if (p.spec.label.ends_with("gate") || p.spec.label == "lm_head") {
      for (int64_t i = 0; i < p.spec.size(); ++i) ASSERT_EQ(p.value.bf16()[i].bits, 0);
    } else if (p.spec.label != "scalars") {
      double square = 0;
      for (int64_t i = 0; i < p.spec.size(); ++i) {
        square += std::pow(kernels::ToFloat(p.value.bf16()[i]), 2);
      }
      EXPECT_NEAR(square / p.spec.size(), 1.0, 0.03) << p.spec.name;  // 5 sd of 73,728 draws
    }
  }
}

// T1-08: padding holds ones.
TEST(Init, T1_08_Scalars) {
  const GptConfig config = RecordConfig();
  const std::vector<float> s = model::InitialScalars(config, 16);
  ASSERT_EQ(s.size(), 80u);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(s[i], -1.5f);
    EXPECT_EQ(s[12 + 2 * i], 1.0f);
    EXPECT_EQ(s[13 + 2 * i], 0.0f);
    EXPECT_EQ(s[36 + 2 * i], 0.5f);
    EXPECT_EQ(s[37 + 2 * i], 0.5f);
    if (i > 0) {
      EXPECT_EQ(s[60 + i], 0.0f);
    }
  }
  EXPECT_EQ(s[60], 0.0f);
  for (int i = 72; i < 80; ++i) EXPECT_EQ(s[i], 1.0f);
}

// The same, the backout lambda, and padding.
TEST(Init, T1_08_ScalarsWithBackout) {
  const std::vector<float> a = model::InitialScalars(RecordConfig());
  const std::vector<float> b = model::InitialScalars(RecordWithBackout(), 8);
  ASSERT_EQ(b.size(), 64u);
  for (int i = 0; i <= 60; ++i) EXPECT_EQ(b[i], a[i]) << i;
  EXPECT_EQ(b[61], 0.5f);
  EXPECT_EQ(b[62], 1.0f);
  EXPECT_EQ(b[63], 1.0f);
}

class GptTest : public ::testing::Test {
 protected:
  const GptConfig config_ = SmallModel("muon_custom_sizing");
  const GptConfig with_backout_ = SmallModel("fix_muon_lr");
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
};

// T1-07: zero heads give every class the same logit.
TEST_F(GptTest, T1_07_InitialLossIsLogVocabulary) {
  const auto weights = MakeWeights(config_, 1);
  model::InitParameters(config_, 3, weights->parameters(), *queue_);
  const float want = std::log(96.0f);
  for (bool train : {false, true}) {
    SmallPass pass(config_, 0, 2, train, *queue_);
    const std::vector<float> losses = train ? pass.LossGrad(*weights, 0) : pass.Loss(*weights);
    for (float loss : losses) ASSERT_NEAR(loss, want, 2e-6);  // a few f32 ulps at 15 + 4.6
  }
}

// T1-13: at the start the residual stream ends as x0 (1 + 5 sigmoid(-1.5)), and x0 = rms(embed)
// since the smear lambda is 0.
void ExpectStream(const GptConfig& config, double scale, double roundings, kernels::Queue& queue) {
  const auto weights = MakeWeights(config, 0);
  model::InitParameters(config, 3, weights->parameters(), queue);
  SmallPass pass(config, 0, 2, false, queue);
  pass.Loss(*weights);
  const kernels::BF16* stream = pass.gpt().FinalStream().bf16();
  const kernels::BF16* table = weights->Find("embed.weight").value().value.bf16();
  for (int64_t row = 0; row < 2 * kSlotTokens; ++row) {
    const kernels::BF16* e = table + 32 * pass.input().tokens.i32()[row];
    double square = 0;
    for (int j = 0; j < 32; ++j) square += std::pow(kernels::ToFloat(e[j]), 2) / 32;
    for (int j = 0; j < 32; ++j) {
      const double want = scale * kernels::ToFloat(e[j]) / std::sqrt(square);
      ASSERT_NEAR(kernels::ToFloat(stream[32 * row + j]), want,
                  roundings * kernels::testing::kBf16Roundoff * std::abs(want));
    }
  }
}

// Rounded to bf16 once at x0 and once at each of the five skips.
TEST_F(GptTest, T1_13_ResidualScale) { ExpectStream(config_, 1.912128, 6, *queue_); }

// Less half of layer 8's output, which has seen three skips: x0 (1 + 3 sigmoid(-1.5)). The
// difference keeps the absolute errors of both, on a result that is smaller.
TEST_F(GptTest, T1_13_ResidualScaleWithBackout) {
  ExpectStream(with_backout_, 1.138489, 14, *queue_);
}

// T1-48 and T1-49, s = 0: only lm_head has a gradient.
void ExpectFirstStep(const GptConfig& config, kernels::Queue& queue) {
  const auto weights = MakeWeights(config, 1);
  model::InitParameters(config, 3, weights->parameters(), queue);
  SmallPass pass(config, 0, 2, true, queue);
  for (float loss : pass.LossGrad(*weights, 0)) ASSERT_NEAR(loss, std::log(96.0f), 2e-6);
  for (const kernels::Parameter& p : weights->parameters()) {
    double largest = 0;
    for (float g : Download(p.grad, queue)) largest = std::max(largest, std::abs(double{g}));
    if (p.spec.name == "lm_head.weight") {
      EXPECT_GT(largest, 0) << p.spec.name;
    } else {
      EXPECT_EQ(largest, 0) << p.spec.name;
    }
  }
}

TEST_F(GptTest, T1_48_FirstStep) { ExpectFirstStep(config_, *queue_); }
TEST_F(GptTest, T1_49_FirstStepWithBackout) { ExpectFirstStep(with_backout_, *queue_); }

// T1-55: with zero O and c_proj, the gradient that enters the final rms is orthogonal to its
// input, so block lambdas and skip weights have gradients of rounding noise only, and (T1-48,
// s = 1) what lies behind the zero matrices has none.
void ExpectSecondStep(const GptConfig& config, kernels::Queue& queue) {
  const auto weights = MakeWeights(config, 1);
  model::InitParameters(config, 3, weights->parameters(), queue);
  const kernels::Tensor head = weights->Find("lm_head.weight").value().value;
  for (int64_t i = 0; i < head.size(); ++i) {
    head.bf16()[i] = kernels::ToBF16(i * 7 % 5 < 2 ? 0.008f : -0.008f);
  }
  SmallPass(config, 0, 2, true, queue).LossGrad(*weights, 0);
  const auto norm = [&](const std::string& name) {
    double square = 0;
    for (float g : Download(weights->Find(name).value().grad, queue)) square += double{g} * g;
    return std::sqrt(square);
  };
  for (const char* name : {"blocks.1.mlp.c_fc", "value_embeds.1.weight", "smear_gate.weight",
                           "blocks.1.attn.attn_gate.weight"}) {
    EXPECT_EQ(norm(name), 0) << name;
  }
  for (const char* name : {"blocks.1.mlp.c_proj", "blocks.1.attn.qkvo_w", "embed.weight"}) {
    EXPECT_GT(norm(name), 0) << name;
  }
  const std::vector<float> g = Download(weights->Find("scalars").value().grad, queue);
  EXPECT_NE(g[model::SmearLambda(config)], 0);
  // Per token |dx| |x| is about 0.008 sqrt(96) sqrt(32) = 0.4; its share along x is rounding,
  // 2^-9 of that, with random signs over 192 tokens: about 0.01. Without T1-55 it would be 6.
  for (int i = 0; i < 36; ++i) EXPECT_LT(std::abs(g[i]), 0.1) << i;
  for (int i = 36; i < 60; ++i) EXPECT_EQ(g[i], 0) << i;
  if (config.backout_layer >= 0) {
    EXPECT_LT(std::abs(g[model::BackoutLambda(config)]), 0.1);
  }
}

TEST_F(GptTest, T1_55_T1_48_SecondStep) { ExpectSecondStep(config_, *queue_); }
// T1-49: what training sees at s = 2, as Adam first steps at s = 1.
TEST_F(GptTest, T1_55_T1_49_SecondStepWithBackout) { ExpectSecondStep(with_backout_, *queue_); }

}  // namespace
}  // namespace tools
