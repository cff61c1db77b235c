// Models whose attention weights are stored in two banks, of Q and K and of V and O, against the
// same model with one.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "model/gpt.h"
#include "model/init.h"
#include "model/parameters.h"
#include "model/testing.h"

namespace model {
namespace {

using testing::BanksToy;
using testing::Download;
using testing::MakeWeights;
using testing::SmallPass;

GptConfig Split(GptConfig config) {
  config.split_attention_banks = true;
  config.initial.qkv = config.initial.o = 0.5;
  return config;
}

// Four heads, so that pairs of them are matrices with fewer rows than columns.
GptConfig OneBank() {
  GptConfig config = BanksToy();
  config.heads = 4;
  config.head_dim = 8;
  return config;
}

kernels::Parameter Find(const ParameterArena& weights, const char* name) {
  return weights.Find(name).value();
}

// Gives `split` the weights of `one`.
void CopyWeights(const ParameterArena& one, const ParameterArena& split, kernels::Queue& queue) {
  for (const kernels::Parameter& p : split.parameters()) {
    const auto from = one.Find(p.spec.name);
    if (from.ok()) queue.Upload(from->value.data(), p.value);
  }
  const kernels::BF16* from = Find(one, "attn_bank").value.bf16();
  const kernels::Tensor qk = Find(split, "qk_bank").value, vo = Find(split, "vo_bank").value;
  const int64_t half = 2 * 32 * 32;  // of a layer's Q, K, V, O
  for (int64_t i = 0; i < qk.size(); ++i) {
    qk.bf16()[i] = from[i / half * 2 * half + i % half];
    vo.bf16()[i] = from[i / half * 2 * half + half + i % half];
  }
}

// The gradients of a model with two banks, as one with one bank has them.
std::vector<float> Joined(const ParameterArena& split, kernels::Queue& queue) {
  const std::vector<float> qk = Download(Find(split, "qk_bank").grad, queue);
  const std::vector<float> vo = Download(Find(split, "vo_bank").grad, queue);
  const size_t half = 2 * 32 * 32;
  std::vector<float> joined;
  for (size_t at = 0; at < qk.size(); at += half) {
    joined.insert(joined.end(), qk.begin() + at, qk.begin() + at + half);
    joined.insert(joined.end(), vo.begin() + at, vo.begin() + at + half);
  }
  return joined;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0, error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    square += double{a[i]} * a[i];
    error += std::pow(double{a[i]} - b[i], 2);
  }
  return std::sqrt(error / square);
}

class SplitBanksTest : public ::testing::Test {
 protected:
  // The same weights, `leaves` leaves.
  void Make(int64_t leaves) {
    one_ = MakeWeights(OneBank(), leaves);
    split_ = MakeWeights(Split(OneBank()), leaves);
    testing::SetHashedWeights(OneBank(), *one_, *queue_);
    CopyWeights(*one_, *split_, *queue_);
  }

  // Backward of both slots, one a pass; slot s goes to leaf s if there are two.
  std::vector<float> TwoPasses(const GptConfig& config, const ParameterArena& weights) {
    std::vector<float> losses;
    for (int slot = 0; slot < 2; ++slot) {
      SmallPass pass(config, slot, 1, true, *queue_);
      for (float loss : pass.LossGrad(weights, slot, slot == 1)) losses.push_back(loss);
    }
    return losses;
  }

  // Bit for bit, but for the factors of Q, K and V: their gradients are sums over both banks, which
  // are added in another order.
  void ExpectSameGradients(double attention_bound) {
    for (const kernels::Parameter& p : one_->parameters()) {
      const std::string& name = p.spec.name;
      const std::vector<float> want = Download(p.grad, *queue_);
      const std::vector<float> got = name == "attn_bank"
                                         ? Joined(*split_, *queue_)
                                         : Download(Find(*split_, name.c_str()).grad, *queue_);
      ASSERT_EQ(got.size(), want.size()) << name;
      EXPECT_NE(*std::max_element(want.begin(), want.end()), 0) << name;
      if (name == "scalars") {
        EXPECT_LT(Distance(want, got), 1e-6);
      } else if (name == "attn_bank" && attention_bound > 0) {
        EXPECT_LT(Distance(want, got), attention_bound);
      } else {
        EXPECT_EQ(got, want) << name;
      }
    }
  }

  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(2);
  std::unique_ptr<ParameterArena> one_, split_;
};

TEST(SplitBanks, ConfigsThatDoNotFit) {
  GptConfig odd = Split(BanksToy());
  odd.heads = 3;
  odd.head_dim = 32;
  odd.dim = 96;
  const absl::Status status = Validate(odd);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("heads is 3, an odd number"), absl::string_view::npos) << status;
  const absl::Status no_banks = Validate(Split(testing::PerLayerToy()));
  EXPECT_NE(no_banks.message().find("needs weights in banks"), absl::string_view::npos) << no_banks;
}

TEST_F(SplitBanksTest, OnePassIsThatOfOneBank) {
  Make(1);
  SmallPass one(OneBank(), 0, 2, true, *queue_), split(Split(OneBank()), 0, 2, true, *queue_);
  EXPECT_EQ(split.LossGrad(*split_, 0), one.LossGrad(*one_, 0));
  ExpectSameGradients(0);
  EXPECT_EQ(SmallPass(Split(OneBank()), 0, 2, false, *queue_).Loss(*split_),
            SmallPass(OneBank(), 0, 2, false, *queue_).Loss(*one_));
}

// A leaf a slot, as in deterministic runs.
TEST_F(SplitBanksTest, LeavesAreThoseOfOneBank) {
  Make(2);
  EXPECT_EQ(TwoPasses(Split(OneBank()), *split_), TwoPasses(OneBank(), *one_));
  ExpectSameGradients(0);
}

// A second pass adds its sum to that of the first, where the product with one bank goes on from it:
// one rounding to f32 an element.
TEST_F(SplitBanksTest, SeveralPassesAddUp) {
  Make(1);
  EXPECT_EQ(TwoPasses(Split(OneBank()), *split_), TwoPasses(OneBank(), *one_));
  ExpectSameGradients(1e-6);
}

// Padding of any number of ranks is zero in weights and gradients.
TEST_F(SplitBanksTest, AN_36_PaddingIsZero) {
  const GptConfig config = Split(OneBank());
  for (int ranks : {1, 3, 7, 8}) {
    const auto weights = *ParameterArena::Create(config, 1, kernels::CpuBackend(), ranks);
    InitParameters(config, 1, weights->parameters(), *queue_);
    SmallPass(config, 0, 2, true, *queue_).LossGrad(*weights, 0);
    for (const char* name : {"qk_bank", "vo_bank"}) {
      const kernels::Parameter p = Find(*weights, name);
      const int64_t matrices = (p.spec.matrices + ranks - 1) / ranks * ranks;
      EXPECT_EQ(p.room, matrices * p.spec.rows * p.spec.cols) << name << ", " << ranks;
      for (int64_t i = p.spec.size(); i < p.room; ++i) {
        ASSERT_EQ(p.grad.f32()[i], 0.0f) << name;
        ASSERT_EQ(p.value.bf16()[i].bits, 0) << name;
      }
    }
  }
}

// Uniform, O too, as wide as the config says.
TEST_F(SplitBanksTest, InitialWeights) {
  const auto weights = MakeWeights(Split(OneBank()), 0);
  InitParameters(Split(OneBank()), 7, weights->parameters(), *queue_);
  const double bound = std::sqrt(3.0 / 32) / 2;
  for (const char* name : {"qk_bank", "vo_bank"}) {
    const kernels::Parameter p = Find(*weights, name);
    double square = 0, largest = 0;
    for (int64_t i = 0; i < p.spec.size(); ++i) {
      const double value = kernels::ToFloat(p.value.bf16()[i]);
      square += value * value;
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_NEAR(square / p.spec.size(), bound * bound / 3, 0.03 * bound * bound / 3) << name;
    EXPECT_GT(largest, 0.99 * bound) << name;
    EXPECT_LE(largest, bound * (1 + kernels::testing::kBf16Roundoff)) << name;
  }
  EXPECT_NE(Find(*weights, "qk_bank").value.bf16()[0].bits,
            Find(*weights, "vo_bank").value.bf16()[0].bits);
}

}  // namespace
}  // namespace model
