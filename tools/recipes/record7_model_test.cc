// The model of track 2's record of 2025-04-16.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "model/config.h"
#include "model/init.h"
#include "model/parameters.h"
#include "model/testing.h"
#include "tools/recipes/recipe.h"
#include "tools/recipes/small_model.h"

namespace tools {
namespace {

TEST(Record7, T2_41_Flops) {
  const model::GptConfig config = FindRecipe("record7", "full", 50304)->model;
  EXPECT_EQ(2 * model::HiddenMatrixParameters(config), 394'264'576);
  EXPECT_EQ(model::ForwardFlopsPerToken(config), 394'264'576 + 103'022'592);
}

TEST(Record7, T2_03_T2_21_InitialWeights) {
  model::GptConfig config = SmallModel("record7");
  config.dim = 128;
  config.head_dim = 64;
  config.mlp_dim = 512;
  const auto weights = model::testing::MakeWeights(config, 0);
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  model::InitParameters(config, 5, weights->parameters(), *queue);
  EXPECT_NEAR(std::sqrt(3.0) / 2 / std::sqrt(1024.0), 0.0270633, 1e-7);
  const double deviation = 0.5 / std::sqrt(128.0);
  for (const kernels::Parameter& p : weights->parameters()) {
    const std::string& name = p.spec.name;
    if (name == "scalars") continue;
    const auto value = [&p](int64_t i) {
      return p.spec.dtype == kernels::DType::kF32 ? p.value.f32()[i]
                                                  : kernels::ToFloat(p.value.bf16()[i]);
    };
    const int64_t quarter = p.spec.size() / 4;
    const bool qkvo = p.spec.label == "attn";
    double square = 0, largest = 0;
    for (int64_t i = 0; i < (qkvo ? 3 * quarter : p.spec.size()); ++i) {
      square += std::pow(value(i), 2);
      largest = std::max<double>(largest, std::abs(value(i)));
    }
    if (p.spec.label == "proj" || p.spec.label == "lm_head") {
      EXPECT_EQ(largest, 0) << name;
    } else if (p.spec.label == "embed" || p.spec.label == "value_embed") {
      EXPECT_NEAR(std::sqrt(square / p.spec.size()), 1, 0.03) << name;  // 12,288 draws
    } else {
      EXPECT_NEAR(std::sqrt(square / (qkvo ? 3 * quarter : p.spec.size())), deviation,
                  0.01 * deviation)
          << name;
      EXPECT_LE(largest, std::sqrt(3.0) * deviation * (1 + kernels::testing::kBf16Roundoff))
          << name;
    }
    for (int64_t i = 3 * quarter; qkvo && i < 4 * quarter; ++i) ASSERT_EQ(value(i), 0) << name;
  }
  std::vector<float> want(16, 1.0f);
  for (int i = 0; i < 16; ++i) want.insert(want.end(), {1.0f, 0.0f});
  for (int i = 0; i < 32; ++i) want.push_back(0.5f);
  EXPECT_EQ(model::InitialScalars(config), want);
}

// Of the 80 scalars 3 skip weights, all block lambdas, the first attention lambda of 15 layers and
// the second of 6 take part.
TEST(Record7, T2_21_ScalarsThatLearn) {
  const model::GptConfig config = SmallModel("record7");
  const auto weights = model::testing::MakeWeights(config, 1);
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  model::testing::SetHashedWeights(config, *weights, *queue);
  model::testing::SmallPass(config, 0, 2, true, *queue).LossGrad(*weights, 0);
  const std::vector<float> gradient =
      model::testing::Download(weights->Find("scalars").value().grad, *queue);
  ASSERT_EQ(gradient.size(), 80u);
  EXPECT_EQ(80 - std::count(gradient.begin(), gradient.end(), 0.0f), 56);
  for (int source : {2, 4, 6}) EXPECT_NE(gradient[source], 0) << source;
}

}  // namespace
}  // namespace tools
