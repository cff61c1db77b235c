// Models whose weights are stored in banks.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

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
using testing::SmallPass;

class BanksTest : public ::testing::Test {
 protected:
  const GptConfig config_ = BanksToy();
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
};

// Room for equal chunks on any number of ranks, zero beyond the weights.
TEST_F(BanksTest, RoomForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    const auto weights = *ParameterArena::Create(config_, 1, kernels::CpuBackend(), ranks);
    testing::SetHashedWeights(config_, *weights, *queue_);
    SmallPass(config_, 0, 2, true, *queue_).LossGrad(*weights, 0);
    for (const kernels::Parameter& p : weights->parameters()) {
      const int64_t matrix = p.spec.rows * p.spec.cols;
      EXPECT_GE(p.room, (p.spec.matrices + ranks - 1) / ranks * ranks * matrix) << p.spec.name;
      EXPECT_GE(p.room, (p.spec.size() + ranks - 1) / ranks * ranks) << p.spec.name;
      for (int64_t i = p.spec.size(); i < p.room; ++i) ASSERT_EQ(p.grad.f32()[i], 0.0f);
    }
  }
}

// Slots a pass and threads change no bit of the losses, nor of a slot's own gradients; the sum of
// those is what a pass of both slots gives.
TEST_F(BanksTest, SlotsAreIndependent) {
  const auto sum = MakeWeights(config_, 1), apart = MakeWeights(config_, 2),
             again = MakeWeights(config_, 2);
  testing::SetHashedWeights(config_, *sum, *queue_);
  const std::vector<float> together = SmallPass(config_, 0, 2, true, *queue_).LossGrad(*sum, 0);
  const std::unique_ptr<kernels::Queue> single = kernels::MakeCpuQueue(1);
  const auto run = [&](const ParameterArena& weights, kernels::Queue& queue) {
    testing::SetHashedWeights(config_, weights, queue);
    std::vector<float> losses;
    for (int slot = 0; slot < 2; ++slot) {
      SmallPass pass(config_, slot, 1, true, queue);
      for (float loss : pass.LossGrad(weights, slot, slot == 1)) losses.push_back(loss);
    }
    return losses;
  };
  EXPECT_EQ(run(*apart, *queue_), together);
  EXPECT_EQ(run(*again, *single), together);
  for (size_t i = 0; i < sum->parameters().size(); ++i) {
    EXPECT_EQ(Download(apart->parameters()[i].grad, *queue_),
              Download(again->parameters()[i].grad, *queue_))
        << sum->parameters()[i].spec.name;
    testing::ExpectSumOfTwoLeaves(sum->parameters()[i], apart->parameters()[i], *queue_);
  }
}

// Half of a bank's gradient is not there before FinishGradients: the factors multiply it, and get
// gradients of their own, d(factor) = <dW', W> = <dW, W> / factor.
TEST_F(BanksTest, FactorsOfAttentionWeights) {
  const auto weights = MakeWeights(config_, 1);
  testing::SetHashedWeights(config_, *weights, *queue_);
  SmallPass(config_, 0, 2, true, *queue_).LossGrad(*weights, 0);
  const kernels::Parameter bank = weights->Find("attn_bank").value();
  const kernels::Parameter scalars = weights->Find("scalars").value();
  const std::vector<int> layers = AttentionLayers(config_);
  const int64_t square = 32 * 32;
  for (size_t slot = 0; slot < layers.size(); ++slot) {
    for (int part = 0; part < 2; ++part) {
      const int64_t begin = slot * 4 * square + (part == 0 ? 0 : 3 * square);
      const int64_t count = part == 0 ? 3 * square : square;
      double dot = 0, size = 0;
      for (int64_t i = begin; i < begin + count; ++i) {
        const double w = kernels::ToFloat(bank.value.bf16()[i]), dw = bank.grad.f32()[i];
        dot += w * dw;
        size += std::abs(w * dw);
      }
      const int factor = WeightFactor(config_, layers[slot]) + part;
      EXPECT_NEAR(scalars.grad.f32()[factor], dot / scalars.value.f32()[factor],
                  1e-5 * size / std::abs(scalars.value.f32()[factor]))
          << "layer " << layers[slot];
    }
  }
}

}  // namespace
}  // namespace model
