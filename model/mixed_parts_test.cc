// Models that mix parts in ways that no recipe does.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/gpt.h"
#include "model/parameters.h"
#include "model/testing.h"

namespace model {
namespace {

using testing::BanksToy;
using testing::Download;
using testing::MakeWeights;
using testing::PerLayerToy;
using testing::SmallPass;

struct Mix {
  const char* name;
  GptConfig (*config)();
};

// Banks whose products read the matrices themselves.
GptConfig Plain() {
  GptConfig config = BanksToy();
  config.attention_factors = false;
  return config;
}

// The same model with a parameter for each part of each layer.
GptConfig Unbanked() {
  GptConfig config = Plain();
  config.storage = Storage::kPerLayer;
  config.qkvo_shape = QkvoShape::kStack;
  return config;
}

GptConfig BanksWithScalars() {
  GptConfig config = BanksToy();
  for (LayerConfig& layer : config.layers) layer.paired_heads = layer.key_offset = false;
  config.rotary_pairs = RotaryPairs::kHalves;
  config.rotary_dtype = kernels::DType::kF32;
  config.value_mix = ValueMix::kScalars;
  config.value_norm = true;
  config.skip_weight = SkipWeight::kPlain;
  config.attention_gate = config.smear = false;
  config.attention_input = AttentionInput::kStream;
  return config;
}

GptConfig LayersWithGatedSkips() {
  GptConfig config = PerLayerToy();
  config.skip_weight = SkipWeight::kGate;
  config.mlp_layout = MlpLayout::kHiddenDim;
  config.head_layout = HeadLayout::kDimVocab;
  config.head_dtype = kernels::DType::kF32;
  config.names.head = "lm_head_w";
  config.backout_layer = 5;
  return config;
}

// Value gates without attention gates.
GptConfig LayersWithValueGates() {
  GptConfig config = Unbanked();
  config.matrix_dtype = kernels::DType::kF32;
  config.attention_gate = false;
  config.skip_weight = SkipWeight::kSigmoid;
  config.mlp_layout = MlpLayout::kOutIn;
  return config;
}

class MixedPartsTest : public ::testing::TestWithParam<Mix> {
 protected:
  const GptConfig config_ = GetParam().config();
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
};

// Every parameter has a gradient, and a pass of both slots has the losses and the sum of the
// gradients of one pass each.
TEST_P(MixedPartsTest, LossesAndGradientsOfSlots) {
  ASSERT_TRUE(Validate(config_).ok()) << Validate(config_);
  const auto sum = MakeWeights(config_, 1), apart = MakeWeights(config_, 2);
  testing::SetHashedWeights(config_, *sum, *queue_);
  testing::SetHashedWeights(config_, *apart, *queue_);
  const std::vector<float> together = SmallPass(config_, 0, 2, true, *queue_).LossGrad(*sum, 0);
  std::vector<float> losses;
  for (int slot = 0; slot < 2; ++slot) {
    SmallPass pass(config_, slot, 1, true, *queue_);
    for (float loss : pass.LossGrad(*apart, slot, slot == 1)) losses.push_back(loss);
  }
  EXPECT_EQ(losses, together);
  for (float loss : losses) ASSERT_TRUE(std::isfinite(loss));
  for (size_t i = 0; i < sum->parameters().size(); ++i) {
    testing::ExpectSumOfTwoLeaves(sum->parameters()[i], apart->parameters()[i], *queue_);
  }
}

// A step against the gradient of one parameter changes the loss by its square; the head is in bf16,
// whose gradient is that of the losses.
TEST_P(MixedPartsTest, GradientsAreSlopes) {
  GptConfig config = config_;
  config.fp8_head = false;
  config.loss_weights = 0;
  const auto weights = MakeWeights(config, 1);
  testing::SetHashedWeights(config, *weights, *queue_);
  SmallPass pass(config, 0, 2, true, *queue_);
  const auto loss = [&] {
    double total = 0;
    for (float each : pass.Loss(*weights)) total += each;
    return total;
  };
  pass.LossGrad(*weights, 0);
  const kernels::Parameter scalars = weights->Find("scalars").value();
  const std::vector<float> gradient = Download(scalars.grad, *queue_);
  double square = 0;
  for (float g : gradient) square += double{g} * g;
  // The loss changes by about 4 of some 1,000; what bf16 rounds is a hundredth of that.
  const double step = 2 / square;
  std::vector<float> there(gradient.size());
  const auto at = [&](double t) {
    const std::vector<float> before(scalars.value.f32(), scalars.value.f32() + gradient.size());
    for (size_t i = 0; i < there.size(); ++i) {
      scalars.value.f32()[i] = static_cast<float>(before[i] + t * gradient[i]);
    }
    const double total = loss();
    std::copy(before.begin(), before.end(), scalars.value.f32());
    return total;
  };
  EXPECT_NEAR(at(step) - at(-step), 4, 0.4);
}

INSTANTIATE_TEST_SUITE_P(Mixes, MixedPartsTest,
                         ::testing::Values(Mix{"Plain", Plain}, Mix{"Unbanked", Unbanked},
                                           Mix{"BanksWithScalars", BanksWithScalars},
                                           Mix{"LayersWithGatedSkips", LayersWithGatedSkips},
                                           Mix{"LayersWithValueGates", LayersWithValueGates}),
                         [](const auto& info) { return info.param.name; });

// Where the weights of `layers`, of Unbanked(), stand in the banks of Plain().
kernels::Tensor InBanks(const ParameterArena& banks, const std::string& name, kernels::Tensor all,
                        bool gradient) {
  const auto find = [&](const char* bank) {
    const kernels::Parameter p = banks.Find(bank).value();
    return gradient ? p.grad.At(0).Reshape(p.spec.shape) : p.value;
  };
  int layer = 0;
  if (std::sscanf(name.c_str(), "blocks.%d.", &layer) != 1) return all;
  const std::vector<int> attention = AttentionLayers(Plain()),
                         gated = ValueEmbeddingLayers(Plain());
  const auto place = [layer](const std::vector<int>& layers) {
    return std::find(layers.begin(), layers.end(), layer) - layers.begin();
  };
  if (absl::EndsWith(name, "qkvo_w")) return find("attn_bank").At(place(attention));
  if (absl::EndsWith(name, "attn_gate.weight")) return find("attn_gate_bank").At(place(attention));
  if (absl::EndsWith(name, "ve_gate.weight")) return find("ve_gate_bank").At(place(gated));
  return find("mlp_bank").At(layer).At(absl::EndsWith(name, "c_fc") ? 0 : 1);
}

// How weights are stored changes no bit of losses and gradients.
TEST(Storage, IsNoPartOfTheModel) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(2);
  const auto banks = MakeWeights(Plain(), 1), layers = MakeWeights(Unbanked(), 1);
  testing::SetHashedWeights(Plain(), *banks, *queue);
  const auto same_name = [&](const std::string& name) { return banks->Find(name); };
  for (const kernels::Parameter& p : layers->parameters()) {
    if (p.spec.name == "scalars") continue;
    const auto found = same_name(p.spec.name);
    const kernels::Tensor all = found.ok() ? found->value : kernels::Tensor();
    queue->Upload(InBanks(*banks, p.spec.name, all, false).data(), p.value);
  }
  // `scalars` of the one by those of the other and x0_lambdas.
  const kernels::Parameter to = layers->Find("scalars").value();
  const kernels::Parameter from = banks->Find("scalars").value();
  const kernels::Parameter x0 = banks->Find("x0_lambdas").value();
  std::vector<std::pair<int, int>> places;  // of to, and of from or, behind it, of x0
  for (int i = 0; i < 7; ++i) {
    places.emplace_back(BlockLambda(Unbanked(), i), BlockLambda(Plain(), i));
    places.emplace_back(X0Lambda(Unbanked(), i), X0Lambda(Plain(), i));
  }
  places.emplace_back(SkipScalar(Unbanked(), 4), SkipScalar(Plain(), 4));
  places.emplace_back(SmearLambda(Unbanked()), SmearLambda(Plain()));
  places.emplace_back(BackoutLambda(Unbanked()), BackoutLambda(Plain()));
  const auto count = static_cast<int>(from.spec.size());
  for (const auto& [layer, bank] : places) {
    to.value.f32()[layer] = bank < count ? from.value.f32()[bank] : x0.value.f32()[bank - count];
  }

  EXPECT_EQ(SmallPass(Unbanked(), 0, 2, true, *queue).LossGrad(*layers, 0),
            SmallPass(Plain(), 0, 2, true, *queue).LossGrad(*banks, 0));
  queue->Synchronize();
  for (const kernels::Parameter& p : layers->parameters()) {
    if (p.spec.name == "scalars") continue;
    const auto found = same_name(p.spec.name);
    const kernels::Tensor all = found.ok() ? found->grad : kernels::Tensor();
    const float* want = InBanks(*banks, p.spec.name, all, true).f32();
    for (int64_t i = 0; i < p.spec.size(); ++i) ASSERT_EQ(p.grad.f32()[i], want[i]) << p.spec.name;
  }
  for (const auto& [layer, bank] : places) {
    const float want = bank < count ? from.grad.f32()[bank] : x0.grad.f32()[bank - count];
    EXPECT_EQ(to.grad.f32()[layer], want) << layer;
  }
}

}  // namespace
}  // namespace model
