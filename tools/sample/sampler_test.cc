#include "tools/sample/sampler.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/init.h"
#include "model/parameters.h"

namespace tools {
namespace {

TEST(DrawToken, GreedyIsTheFirstOfTheLargest) {
  const float logits[] = {1, 3, 3, 2};
  EXPECT_EQ(DrawToken(logits, 4, 0, 0.99), 1);
}

TEST(DrawToken, FollowsTheProbabilities) {
  const float logits[] = {0, std::log(2.0f), std::log(5.0f)};  // 1/8, 2/8, 5/8
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.0), 0);
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.124), 0);
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.126), 1);
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.374), 1);
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.376), 2);
  EXPECT_EQ(DrawToken(logits, 3, 1, 0.999999), 2);
  // At temperature 1/2 the weights are squared: 1/30, 4/30, 25/30.
  EXPECT_EQ(DrawToken(logits, 3, 0.5, 0.032), 0);
  EXPECT_EQ(DrawToken(logits, 3, 0.5, 0.034), 1);
  EXPECT_EQ(DrawToken(logits, 3, 0.5, 0.168), 2);
}

class SamplerTest : public testing::Test {
 protected:
  void SetUp() override {
    config_ = *model::MuonCustomSizingConfig(
        {.vocab_size = 128, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128});
    weights_ = *model::ParameterArena::Create(config_, 0, kernels::CpuBackend());
    model::InitParameters(config_, 1, weights_->parameters(), *queue_);
    schedules_.rotary.head_dim = 16;
    auto sampler = Sampler::Create(config_, schedules_, 10, weights_->parameters(), 24, 100,
                                   kernels::CpuBackend(), *queue_);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    sampler_ = *std::move(sampler);
  }

  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
  model::GptConfig config_;
  sched::Schedules schedules_;
  std::unique_ptr<model::ParameterArena> weights_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(SamplerTest, AnUntrainedModelDrawsFromAllClassesAndFromNoPadding) {
  // All logits are 0 at first, so tokens are uniform over the 100 classes.
  const auto tokens = sampler_->Generate({5}, -1, {.max_tokens = 20, .temperature = 1, .seed = 3});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->size(), 20u);
  int distinct = 0;
  for (size_t i = 0; i < tokens->size(); ++i) {
    EXPECT_GE((*tokens)[i], 0);
    EXPECT_LT((*tokens)[i], 100);
    distinct += i > 0 && (*tokens)[i] != (*tokens)[0];
  }
  EXPECT_GT(distinct, 10);
  EXPECT_EQ(*sampler_->Generate({5}, -1, {.max_tokens = 20, .temperature = 1, .seed = 3}), *tokens);
  EXPECT_NE(*sampler_->Generate({5}, -1, {.max_tokens = 20, .temperature = 1, .seed = 4}), *tokens);
}

TEST_F(SamplerTest, StopsAtTheStopTokenAndAtTheEndOfItsContext) {
  EXPECT_TRUE(sampler_->Generate({5}, 0, {.max_tokens = 20})->empty());  // greedy draws 0
  EXPECT_EQ(sampler_->Generate(std::vector<int32_t>(20, 1), -1, {.max_tokens = 20})->size(), 4u);
}

TEST_F(SamplerTest, BadInputIsRefused) {
  EXPECT_FALSE(sampler_->Generate({}, -1, {}).ok());
  EXPECT_FALSE(sampler_->Generate(std::vector<int32_t>(24, 1), -1, {}).ok());
  EXPECT_FALSE(sampler_->Generate({100}, -1, {}).ok());
  EXPECT_FALSE(sampler_->Generate({1}, -1, {.temperature = -1}).ok());
  EXPECT_FALSE(sampler_->Generate({1}, -1, {.temperature = NAN}).ok());
}

}  // namespace
}  // namespace tools
