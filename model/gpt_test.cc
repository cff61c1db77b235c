#include "model/gpt.h"

#include <cmath>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "model/init.h"
#include "model/testing.h"

namespace model {
namespace {

using testing::Download;
using testing::kSlotTokens;
using testing::MakeWeights;
using testing::SmallBackoutConfig;
using testing::SmallConfig;
using testing::SmallPass;

class GptTest : public ::testing::Test {
 protected:
  const GptConfig config_ = SmallConfig();
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
};

// A slot computed with others has the same bits as alone, in each of its gradients.
TEST_F(GptTest, SlotsAreIndependent) {
  const auto together = MakeWeights(config_, 2), apart = MakeWeights(config_, 2);
  testing::SetHashedWeights(config_, *together, *queue_);
  testing::SetHashedWeights(config_, *apart, *queue_);
  const std::vector<float> losses = SmallPass(config_, 0, 2, true, *queue_).LossGrad(*together, 0);
  std::vector<float> separate;
  for (int slot = 0; slot < 2; ++slot) {
    for (float loss : SmallPass(config_, slot, 1, true, *queue_).LossGrad(*apart, slot)) {
      separate.push_back(loss);
    }
  }
  EXPECT_EQ(losses, separate);
  for (size_t i = 0; i < together->parameters().size(); ++i) {
    EXPECT_EQ(Download(together->parameters()[i].grad, *queue_),
              Download(apart->parameters()[i].grad, *queue_))
        << together->parameters()[i].spec.name;
  }
}

// The same with a backout, whose scalar gets a gradient.
TEST_F(GptTest, BackoutKeepsSlotsAndThreadsApart) {
  const GptConfig config = SmallBackoutConfig();
  const auto together = MakeWeights(config, 2), apart = MakeWeights(config, 2);
  testing::SetHashedWeights(config, *together, *queue_);
  testing::SetHashedWeights(config, *apart, *queue_);
  const std::unique_ptr<kernels::Queue> single = kernels::MakeCpuQueue(1);
  SmallPass(config, 0, 2, true, *queue_).LossGrad(*together, 0);
  for (int slot = 0; slot < 2; ++slot) {
    SmallPass(config, slot, 1, true, *single).LossGrad(*apart, slot);
  }
  for (size_t i = 0; i < together->parameters().size(); ++i) {
    EXPECT_EQ(Download(together->parameters()[i].grad, *queue_),
              Download(apart->parameters()[i].grad, *queue_))
        << together->parameters()[i].spec.name;
  }
  EXPECT_NE(together->Find("scalars").value().grad.f32()[BackoutLambda(config)], 0);
}

// Gradients are added to what is there, and the number of threads changes no bit.
TEST_F(GptTest, GradientsAccumulateAndThreadsDoNotMatter) {
  const auto once = MakeWeights(config_, 1), twice = MakeWeights(config_, 1);
  testing::SetHashedWeights(config_, *once, *queue_);
  testing::SetHashedWeights(config_, *twice, *queue_);
  const std::unique_ptr<kernels::Queue> single = kernels::MakeCpuQueue(1);
  SmallPass(config_, 0, 2, true, *single).LossGrad(*once, 0);
  SmallPass pass(config_, 0, 2, true, *queue_);
  pass.LossGrad(*twice, 0);
  for (size_t i = 0; i < once->parameters().size(); ++i) {
    EXPECT_EQ(Download(once->parameters()[i].grad, *queue_),
              Download(twice->parameters()[i].grad, *queue_))
        << once->parameters()[i].spec.name;
  }
  const kernels::Tensor grad = twice->Find("blocks.5.mlp.c_fc").value().grad;
  const float before = grad.f32()[0];
  pass.LossGrad(*twice, 0);
  EXPECT_NEAR(grad.f32()[0], 2 * before, 1e-5 * std::abs(before));
  twice->ZeroGradients(*queue_);
  EXPECT_EQ(grad.f32()[0], 0.0f);
}

// T1-07: zero heads give every class the same logit.
TEST_F(GptTest, T1_07_InitialLossIsLogVocabulary) {
  const auto weights = MakeWeights(config_, 1);
  InitParameters(config_, 3, weights->parameters(), *queue_);
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
  InitParameters(config, 3, weights->parameters(), queue);
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
  ExpectStream(SmallBackoutConfig(), 1.138489, 14, *queue_);
}

// T1-48 and T1-49, s = 0: only lm_head has a gradient.
void ExpectFirstStep(const GptConfig& config, kernels::Queue& queue) {
  const auto weights = MakeWeights(config, 1);
  InitParameters(config, 3, weights->parameters(), queue);
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
TEST_F(GptTest, T1_49_FirstStepWithBackout) { ExpectFirstStep(SmallBackoutConfig(), *queue_); }

// T1-55: with zero O and c_proj, the gradient that enters the final rms is orthogonal to its
// input, so block lambdas and skip weights have gradients of rounding noise only, and (T1-48,
// s = 1) what lies behind the zero matrices has none.
void ExpectSecondStep(const GptConfig& config, kernels::Queue& queue) {
  const auto weights = MakeWeights(config, 1);
  InitParameters(config, 3, weights->parameters(), queue);
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
  EXPECT_NE(g[SmearLambda(config)], 0);
  // Per token |dx| |x| is about 0.008 sqrt(96) sqrt(32) = 0.4; its share along x is rounding,
  // 2^-9 of that, with random signs over 192 tokens: about 0.01. Without T1-55 it would be 6.
  for (int i = 0; i < 36; ++i) EXPECT_LT(std::abs(g[i]), 0.1) << i;
  for (int i = 36; i < 60; ++i) EXPECT_EQ(g[i], 0) << i;
  if (config.backout_layer >= 0) {
    EXPECT_LT(std::abs(g[BackoutLambda(config)]), 0.1);
  }
}

TEST_F(GptTest, T1_55_T1_48_SecondStep) { ExpectSecondStep(config_, *queue_); }
// T1-49: what training sees at s = 2, as Adam first steps at s = 1.
TEST_F(GptTest, T1_55_T1_49_SecondStepWithBackout) {
  ExpectSecondStep(SmallBackoutConfig(), *queue_);
}

// The pass without backward shares memory between layers and gives the same losses as
// training's, apart from the head's precision.
TEST_F(GptTest, ValidationPassMatchesTrainingPass) {
  GptConfig config = config_;
  config.fp8_head = false;
  const auto weights = MakeWeights(config, 1);
  testing::SetHashedWeights(config, *weights, *queue_);
  SmallPass train(config, 0, 2, true, *queue_), validate(config, 0, 2, false, *queue_);
  const std::vector<float> want = train.LossGrad(*weights, 0);
  const std::vector<float> got = validate.Loss(*weights);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
}

// Sampling's logits give the loss of their position.
TEST_F(GptTest, LogitsAgreeWithLoss) {
  const auto weights = MakeWeights(config_, 0);
  testing::SetHashedWeights(config_, *weights, *queue_);
  SmallPass pass(config_, 0, 2, false, *queue_);
  const std::vector<float> losses = pass.Loss(*weights);
  pass.gpt().Hidden(pass.input(), weights->parameters(), *queue_);
  std::vector<float> logits(96);
  const kernels::Tensor tensor(logits.data(), kernels::DType::kF32, {1, 1, 96});
  pass.gpt().Logits(weights->parameters(), 1, 40, tensor, *queue_);
  queue_->Synchronize();
  double sum = 0;
  for (float z : logits) sum += std::exp(double{z});
  const double target = logits[pass.input().targets.i32()[kSlotTokens + 40]];
  EXPECT_NEAR(std::log(sum) - target, losses[kSlotTokens + 40], 1e-4);
}

}  // namespace
}  // namespace model
