#include "optim/sharded_buffer.h"

#include <algorithm>
#include <cmath>

#include "comm/slot_tree.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

constexpr int kSlots = 8;
constexpr int kMembers = 5;
constexpr int64_t kSize = 6;

std::vector<double> SlotGradient(int member, int slot) {
  return RandomTensor(DType::kF32, {kSize}, static_cast<uint32_t>(100 * slot + member + 1))
      .ToDouble();
}

// The reduced gradient of all members, put together from the ranks' chunks.
std::vector<double> Reduced(int ranks, bool deterministic) {
  std::vector<double> reduced(kMembers * kSize);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    const comm::SlotRange run = comm::SlotsOfRank(kSlots, ranks, comm.rank());
    const SlotPlan slots{
        .slots = kSlots, .local_slots = run.count(), .deterministic = deterministic};
    std::vector<HostTensor> memory;
    std::vector<kernels::Parameter> parameters;
    memory.reserve(2 * kMembers);
    for (int i = 0; i < kMembers; ++i) {
      memory.emplace_back(DType::kF32, std::vector<int64_t>{2, 3});
      memory.emplace_back(DType::kF32, std::vector<int64_t>{slots.leaves(), kSize});
      parameters.push_back(
          {{"p", "l", {2, 3}, DType::kF32, 1, 2, 3}, memory[2 * i].get(), memory[2 * i + 1].get()});
      for (int slot = run.begin; slot < run.end; ++slot) {
        const std::vector<double> g = SlotGradient(i, slot);
        float* leaf = parameters[i].grad.f32() + (deterministic ? slot - run.begin : 0) * kSize;
        for (int64_t j = 0; j < kSize; ++j) leaf[j] += static_cast<float>(g[j]);
      }
    }
    std::vector<const kernels::Parameter*> members;
    for (const kernels::Parameter& parameter : parameters) members.push_back(&parameter);
    kernels::ArenaPlan plan;
    ShardedBuffer buffer({"group", {0, 1, 2, 3, 4}, DType::kF32, kSize, kSize}, members, slots,
                         comm, &plan);
    const kernels::TensorId scratch =
        plan.Add("scratch", DType::kF32, {comm::DeterministicScratchElements(kSlots, ranks)});
    const kernels::Arena arena = *kernels::Arena::Create(plan, kernels::CpuBackend());
    buffer.Bind(arena, arena.Get(scratch));
    buffer.LaunchReduce(queue);
    ASSERT_TRUE(buffer.WaitReduce(queue).ok());
    queue.Synchronize();
    const float* own = buffer.own_gradient().f32();
    std::copy_n(
        own, buffer.own_size(),
        reduced.begin() + std::min<int64_t>(kMembers * kSize, comm.rank() * buffer.chunk()));
  });
  return reduced;
}

// (1 / 8) of the sum of the slots' gradients for every number of ranks: eight additions in f32
// of values of at most 5, each off by half an ulp of a sum below 16 (2^-21).
TEST(ShardedBuffer, T1_53_GradientIsTheMeanOverSlots) {
  std::vector<double> want;
  for (int i = 0; i < kMembers; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      double sum = 0;
      for (int slot = 0; slot < kSlots; ++slot) sum += SlotGradient(i, slot)[j];
      want.push_back(sum / kSlots);
    }
  }
  const std::vector<double> tree = Reduced(1, true);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const std::vector<double> got = Reduced(ranks, false);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], std::ldexp(1.0, -21)) << ranks << " ranks, element " << i;
    }
    EXPECT_EQ(Reduced(ranks, true), tree) << ranks << " ranks";
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(tree[i], want[i], std::ldexp(1.0, -21));
}

}  // namespace
}  // namespace optim
