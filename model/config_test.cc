#include "model/config.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "model/testing.h"

namespace model {
namespace {

using testing::BackoutToy;
using testing::BanksToy;
using testing::PerLayerToy;

template <typename Breakage>
std::string Message(GptConfig config, const Breakage& breakage) {
  breakage(config);
  return std::string(Validate(config).message());
}

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Each broken config is refused with a message that names what is wrong.
TEST(Config, ValidateNamesTheFault) {
  const auto expect = [](auto breakage, const char* part) {
    const std::string message = Message(PerLayerToy(), breakage);
    EXPECT_TRUE(Has(message, part)) << message << " lacks " << part;
  };
  using C = GptConfig;
  expect([](C& c) { c.heads = 5; }, "heads 5 x head_dim 16");
  expect([](C& c) { c.vocab_size = 0; }, "vocab_size 0");
  expect([](C& c) { c.gate_features = 33; }, "gate_features 33");
  expect([](C& c) { c.gate_features = 0; }, "gate_features 0");
  expect([](C& c) { c.softcap = 0; }, "softcap 0");
  expect([](C& c) { c.heads = 32, c.head_dim = 1; }, "head_dim 1");
  expect([](C& c) { c.fp8_scales.w = 0; }, "fp8_scales; x 0, w 0");
  expect([](C& c) { c.spare_scalars = -1; }, "spare_scalars -1");
  expect([](C& c) { c.layers[6].value_embedding = 3; }, "layer 6: value");
  expect([](C& c) { c.layers[3].value_embedding = 0; }, "layer 3");
  expect([](C& c) { c.layers[4].skip_from = 0; }, "layer 4: skip");
  expect([](C& c) { c.layers[4].skip_from = 4; }, "layer 4: skip");
  expect([](C& c) { c.layers[2].skip_from = 1; }, "layer 2: only the upper half");
  expect([](C& c) { c.layers[7].skip_from = 3; }, "layer 7: skips from layer 3, as layer 4");
  expect([](C& c) { c.layers.clear(); }, "no layer");
  expect([](C& c) { c.backout_layer = 0; }, "backout_layer 0 is not");
  expect([](C& c) { c.backout_layer = 8; }, "backout_layer 8");
  expect([](C& c) { c.backout_layer = -2; }, "backout_layer -2");
  expect([](C& c) { c.backout_layer = 7; }, "the last one");
  expect([](C& c) { c.backout_layer = 3; }, "layer 4 skips from it");
  for (const GptConfig& config : {PerLayerToy(), BackoutToy(), BanksToy()}) {
    EXPECT_TRUE(Validate(config).ok()) << Validate(config);
  }
}

// So is each combination of parts that there is no code for.
TEST(Config, PartsThatDoNotGoTogether) {
  const auto expect = [](const GptConfig& config, auto breakage, const char* part) {
    const std::string message = Message(config, breakage);
    EXPECT_TRUE(Has(message, part)) << message << " lacks " << part;
  };
  using C = GptConfig;
  const GptConfig layers = PerLayerToy(), banks = BanksToy();
  const auto f32 = kernels::DType::kF32;
  expect(
      layers, [](C& c) { c.matrix_dtype = kernels::DType::kI32; }, "must be f32 or bf16");
  expect(
      banks, [&](C& c) { c.matrix_dtype = f32; }, "storage kBanks needs matrix_dtype");
  expect(
      banks, [&](C& c) { c.head_dtype = f32; }, "storage kBanks needs matrix_dtype");
  expect(
      banks, [](C& c) { c.mlp_layout = MlpLayout::kOutIn; }, "needs mlp_layout kHiddenDim");
  expect(
      banks, [](C& c) { c.spare_scalars = 1; }, "spare_scalars need storage kPerLayer");
  expect(
      layers, [](C& c) { c.split_attention_banks = true; }, "needs weights in banks");
  expect(
      layers, [](C& c) { c.attention_factors = true; }, "attention_factors needs storage");
  expect(
      banks, [](C& c) { c.initial.o = 1; }, "initial.o must be");
  expect(
      banks, [](C& c) { c.split_attention_banks = true; }, "initial.o must be");
  expect(
      layers, [](C& c) { c.initial.embedding_is_head = true; }, "initial.embedding_is_head");
  expect(
      banks, [](C& c) { c.initial.embedding = 1; }, "initial.embedding_is_head");
  expect(
      layers, [](C& c) { c.initial.head_in_bf16 = true; }, "initial.head_in_bf16");
  expect(
      layers, [](C& c) { c.attention_input = AttentionInput::kStream; }, "attention_input kStream");
  expect(
      layers, [](C& c) { c.value_mix = ValueMix::kGate; }, "choose both of one");
  expect(
      layers, [](C& c) { c.rotary_pairs = RotaryPairs::kNeighbours; }, "choose both of one");
  expect(
      banks, [&](C& c) { c.rotary_dtype = f32; }, "kNeighbours needs rotary_dtype bf16");
  expect(
      banks, [](C& c) { c.value_norm = true; }, "no value_norm");
  expect(
      banks, [](C& c) { c.heads = 8, c.head_dim = 4; }, "a multiple of 8, not 4");
  expect(
      layers, [](C& c) { c.layers[1].paired_heads = true; }, "need attention and rotary_pairs");
  expect(
      layers, [](C& c) { c.layers[1].key_offset = true; }, "need attention and rotary_pairs");
  expect(
      banks, [](C& c) { c.layers[6].skip_from = 2; }, "with banks there is one");
}

// Places follow from the parts that are there.
TEST(Config, PlacesOfScalars) {
  GptConfig config = PerLayerToy();  // 8 layers
  EXPECT_EQ(SkipScalar(config, 5), 1);
  EXPECT_EQ(BlockLambda(config, 1), 10);
  EXPECT_EQ(X0Lambda(config, 1), 11);
  EXPECT_EQ(AttentionLambda(config, 1), 26);
  EXPECT_EQ(SmearLambda(config), 40);
  EXPECT_EQ(BackoutLambda(config), -1);
  EXPECT_EQ(WeightFactor(config, 1), -1);
  EXPECT_EQ(ScalarCount(config), 41);
  config.spare_scalars = 7;
  EXPECT_EQ(ScalarCount(config), 48);
  config.skip_weight = SkipWeight::kPlain;
  EXPECT_EQ(SkipScalar(config, 5), 2);  // by its source
  config.smear = false;
  EXPECT_EQ(SmearLambda(config), -1);
  config.value_mix = ValueMix::kGate;
  EXPECT_EQ(AttentionLambda(config, 1), -1);
  EXPECT_EQ(ScalarCount(config), 24 + 7);

  GptConfig banks = BanksToy();  // 7 layers
  EXPECT_EQ(BlockLambda(banks, 1), 1);
  EXPECT_EQ(WeightFactor(banks, 1), 9);
  EXPECT_EQ(SmearLambda(banks), 21);
  EXPECT_EQ(BackoutLambda(banks), 22);
  EXPECT_EQ(SkipScalar(banks, 4), 23);
  EXPECT_EQ(X0Lambda(banks, 1), 25);
  EXPECT_EQ(ScalarCount(banks), 24);
  banks.attention_factors = false;
  EXPECT_EQ(WeightFactor(banks, 1), -1);
  EXPECT_EQ(SmearLambda(banks), 7);
}

// A number instead of the rule for x; the rule follows the width.
TEST(Config, HeadScales) {
  GptConfig config = PerLayerToy();
  EXPECT_EQ(TrainingHeadPrecision(config).x_scale, static_cast<float>(std::sqrt(32.0) / 448));
  config.fp8_scales = {.x = 0.25, .w = 0.5, .grad = 2};
  const kernels::HeadPrecision precision = TrainingHeadPrecision(config);
  EXPECT_TRUE(precision.fp8);
  EXPECT_EQ(precision.x_scale, 0.25f);
  EXPECT_EQ(precision.w_scale, 0.5f);
  EXPECT_EQ(precision.grad_scale, 2.0f);
}

}  // namespace
}  // namespace model
