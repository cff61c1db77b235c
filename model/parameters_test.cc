#include "model/parameters.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/init.h"

namespace model {
namespace {

using kernels::DType;
using kernels::ParameterSpec;

TEST(Parameters, T1_02_Counts) {
  const GptConfig config = MuonCustomSizingConfig(GptSize{}).value();
  std::map<std::string, int64_t> elements, count;
  int64_t total = 0;
  for (const ParameterSpec& spec : ParameterSpecs(config)) {
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
TEST(Parameters, T1_02_CountsOfRecordB) {
  const GptConfig config = FixMuonLRConfig(GptSize{}).value();
  int64_t total = 0;
  for (const ParameterSpec& spec : ParameterSpecs(config)) total += spec.size();
  EXPECT_EQ(total - ScalarCount(config) + ScalarCount(config, 8), 268'665'628);
}

TEST(Parameters, OrderAndNames) {
  const GptConfig config = MuonCustomSizingConfig(GptSize{}).value();
  const std::vector<ParameterSpec> specs = ParameterSpecs(config);
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
  const ParameterLayout layout = LayoutOf(config);
  EXPECT_EQ(specs[layout.layers[7].c_fc].name, "blocks.7.mlp.c_fc");
  EXPECT_EQ(layout.layers[7].qkvo, -1);
  EXPECT_EQ(layout.layers[0].c_fc, -1);
}

// T1-06: the stored [dim, 4 dim] is seen as Q, K, V, O one after the other.
TEST(Parameters, T1_06_QkvoIsFourMatrices) {
  const GptConfig config = MuonCustomSizingConfig(GptSize{}).value();
  const ParameterSpec spec = ParameterSpecs(config)[LayoutOf(config).layers[1].qkvo];
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
  static GptConfig Config() {
    return MuonCustomSizingConfig(
               {.vocab_size = 96, .dim = 768, .heads = 6, .head_dim = 128, .mlp_dim = 3072})
        .value();
  }
  std::unique_ptr<ParameterArena> Init(uint64_t seed) {
    auto arena = ParameterArena::Create(Config(), 0, kernels::CpuBackend()).value();
    InitParameters(Config(), seed, arena->parameters(), *queue_);
    return arena;
  }
  std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
};

TEST_F(InitTest, T1_05_Bounds) {
  const std::unique_ptr<ParameterArena> arena = Init(1);
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

TEST(Init, RepeatsAndFollowsTheSeed) {
  const GptConfig config =
      MuonCustomSizingConfig(
          {.vocab_size = 96, .dim = 32, .heads = 2, .head_dim = 16, .mlp_dim = 128})
          .value();
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  const auto init = [&](uint64_t seed) {
    auto arena = ParameterArena::Create(config, 0, kernels::CpuBackend()).value();
    InitParameters(config, seed, arena->parameters(), *queue);
    return arena;
  };
  const auto a = init(1), b = init(1), c = init(2);
  const auto embed = [](const ParameterArena& arena) {
    const kernels::Tensor t = arena.Find("embed.weight").value().value;
    return std::vector<kernels::BF16>(t.bf16(), t.bf16() + t.size());
  };
  EXPECT_EQ(embed(*a), embed(*b));
  EXPECT_NE(embed(*a), embed(*c));
  EXPECT_EQ(a->Find("embed").status().code(), absl::StatusCode::kNotFound);
}

// T1-08: padding holds ones.
TEST(Init, T1_08_Scalars) {
  const GptConfig config = MuonCustomSizingConfig(GptSize{}).value();
  const std::vector<float> s = InitialScalars(config, 16);
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
TEST(Init, T1_08_ScalarsOfRecordB) {
  const std::vector<float> a = InitialScalars(MuonCustomSizingConfig(GptSize{}).value());
  const std::vector<float> b = InitialScalars(FixMuonLRConfig(GptSize{}).value(), 8);
  ASSERT_EQ(b.size(), 64u);
  for (int i = 0; i <= 60; ++i) EXPECT_EQ(b[i], a[i]) << i;
  EXPECT_EQ(b[61], 0.5f);
  EXPECT_EQ(b[62], 1.0f);
  EXPECT_EQ(b[63], 1.0f);
}

}  // namespace
}  // namespace model
