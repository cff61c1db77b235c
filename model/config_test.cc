#include "model/config.h"

#include <cmath>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace model {
namespace {

GptConfig RecordConfig() { return MuonCustomSizingConfig(GptSize{}).value(); }
GptConfig RecordBConfig() { return FixMuonLRConfig(GptSize{}).value(); }

TEST(Config, T1_01_PaddedVocabulary) {
  EXPECT_EQ(RecordConfig().vocab_size, 50304);
  EXPECT_EQ(RecordConfig().vocab_size - 50257, 47);
  EXPECT_EQ(RecordConfig().vocab_size % 128, 0);
}

TEST(Config, T1_03_DenseParameters) {
  EXPECT_EQ(HiddenMatrixParameters(RecordConfig()), 75'497'472);
  EXPECT_EQ(DenseParametersPerToken(RecordConfig()), 114'130'944);
}

TEST(Config, T1_04_FlopsPerToken) {
  EXPECT_EQ(ForwardFlopsPerToken(RecordConfig()), 228'261'888);
  EXPECT_EQ(TrainingFlopsPerToken(RecordConfig()), 684'785'664);
}

TEST(Config, T1_08_ScalarCount) {
  const GptConfig config = RecordConfig();
  for (int ranks : {1, 2, 4, 8}) EXPECT_EQ(ScalarCount(config, ranks), 72) << ranks;
  EXPECT_EQ(ScalarCount(config, 16), 80);
  EXPECT_EQ(ScalarCount(config), 72);
  const GptConfig b = RecordBConfig();
  for (int ranks : {1, 2}) EXPECT_EQ(ScalarCount(b, ranks), 62) << ranks;
  for (int ranks : {4, 8, 16}) EXPECT_EQ(ScalarCount(b, ranks), 64) << ranks;
}

TEST(Config, RecordBIsRecordAWithABackout) {
  const GptConfig a = RecordConfig(), b = RecordBConfig();
  EXPECT_EQ(a.backout_layer, -1);
  EXPECT_EQ(b.backout_layer, 8);
  EXPECT_EQ(SmearLambda(b), 60);
  EXPECT_EQ(BackoutLambda(b), 61);
  EXPECT_EQ(HiddenMatrixParameters(b), HiddenMatrixParameters(a));
  EXPECT_EQ(TrainingFlopsPerToken(b), TrainingFlopsPerToken(a));
}

TEST(Config, PlacesOfScalars) {
  const GptConfig config = RecordConfig();
  EXPECT_EQ(SkipScalar(config, 6), 0);
  EXPECT_EQ(SkipScalar(config, 10), 4);
  EXPECT_EQ(BlockLambda(config, 0), 12);
  EXPECT_EQ(BlockLambda(config, 11), 34);
  EXPECT_EQ(AttentionLambda(config, 0), 36);
  EXPECT_EQ(AttentionLambda(config, 11), 58);
  EXPECT_EQ(SmearLambda(config), 60);
}

TEST(Config, T1_09_T1_10_T1_11_T1_12_LayerTable) {
  const GptConfig config = RecordConfig();
  ASSERT_EQ(config.layers.size(), 12u);
  const std::set<int> without_attention = {0, 7}, long_window = {4, 11};
  const int value_embedding[12] = {-1, 1, 2, -1, -1, -1, -1, -1, -1, 0, 1, 2};
  const int skip_from[12] = {-1, -1, -1, -1, -1, -1, 5, 4, 3, 2, 1, -1};
  for (int i = 0; i < 12; ++i) {
    const LayerConfig& layer = config.layers[i];
    EXPECT_EQ(layer.attention, !without_attention.contains(i)) << i;
    EXPECT_EQ(layer.mlp, i != 0) << i;
    EXPECT_EQ(layer.executed(), i != 0) << i;
    EXPECT_EQ(layer.long_window, long_window.contains(i)) << i;
    EXPECT_EQ(layer.value_embedding, value_embedding[i]) << i;
    EXPECT_EQ(layer.skip_from, skip_from[i]) << i;
  }
}

TEST(Config, T1_25_HeadScales) {
  const kernels::HeadPrecision precision = TrainingHeadPrecision(RecordConfig());
  EXPECT_TRUE(precision.fp8);
  EXPECT_FLOAT_EQ(precision.x_scale, 0.0618589574f);
  EXPECT_EQ(precision.w_scale, 0.001953125f);
  EXPECT_FLOAT_EQ(precision.grad_scale, 0.00223214286f);
}

// Each broken config is refused with a message that names what is wrong.
TEST(Config, ValidateNamesTheFault) {
  const auto message = [](auto breakage) {
    GptConfig config = RecordConfig();
    breakage(config);
    return std::string(Validate(config).message());
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message([](GptConfig& c) { c.heads = 5; }), "heads 5 x head_dim 128"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.vocab_size = 0; }), "vocab_size 0"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.gate_features = 769; }), "gate_features 769"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.softcap = 0; }), "softcap 0"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.heads = 768, c.head_dim = 1; }), "head_dim 1"));
  EXPECT_TRUE(
      has(message([](GptConfig& c) { c.layers[9].value_embedding = 3; }), "layer 9: value"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers[7].value_embedding = 0; }), "layer 7"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers[6].skip_from = 0; }), "layer 6: skip"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers[6].skip_from = 6; }), "layer 6: skip"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers[3].skip_from = 1; }), "layer 3"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers[7].skip_from = 5; }), "layer 7"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.layers.clear(); }), "no layer"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.backout_layer = 0; }), "backout_layer 0 is not"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.backout_layer = 12; }), "backout_layer 12"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.backout_layer = -2; }), "backout_layer -2"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.backout_layer = 11; }), "the last one"));
  EXPECT_TRUE(has(message([](GptConfig& c) { c.backout_layer = 5; }), "layer 6 skips from it"));
  EXPECT_TRUE(Validate(RecordConfig()).ok());
  EXPECT_TRUE(Validate(RecordBConfig()).ok());
}

TEST(Config, OnlyTwelveLayers) {
  const auto config = MuonCustomSizingConfig({.layers = 8});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(config.status().message().find("12 layers, not 8"), absl::string_view::npos);
}

}  // namespace
}  // namespace model
