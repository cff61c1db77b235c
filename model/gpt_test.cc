#include "model/gpt.h"

#include <cmath>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/init.h"
#include "model/testing.h"

namespace model {
namespace {

using testing::BackoutToy;
using testing::Download;
using testing::kSlotTokens;
using testing::MakeWeights;
using testing::PerLayerToy;
using testing::SmallPass;

class GptTest : public ::testing::Test {
 protected:
  const GptConfig config_ = PerLayerToy();
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
  const GptConfig config = BackoutToy();
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
