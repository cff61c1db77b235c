#include "model/parameters.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/init.h"
#include "model/testing.h"

namespace model {
namespace {

TEST(Init, RepeatsAndFollowsTheSeed) {
  const GptConfig config = testing::PerLayerToy();
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

}  // namespace
}  // namespace model
