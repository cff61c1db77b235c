#include "comm/slot_tree.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

TEST(SlotTree, RunsAreContiguousAndEven) {
  for (int slots : {1, 5, 8, 16}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const SlotRange run = SlotsOfRank(slots, ranks, rank);
        EXPECT_EQ(run.begin, next);
        EXPECT_GE(run.count(), slots / ranks);
        EXPECT_LE(run.count(), slots / ranks + 1);
        next = run.end;
      }
      EXPECT_EQ(next, slots);
    }
  }
}

TEST(SlotTree, SubtreesOfEight) {
  EXPECT_EQ(MaximalSubtrees(8, {0, 8}), (std::vector<SlotRange>{{0, 8}}));
  EXPECT_EQ(MaximalSubtrees(8, {0, 3}), (std::vector<SlotRange>{{0, 2}, {2, 3}}));
  EXPECT_EQ(MaximalSubtrees(8, {3, 6}), (std::vector<SlotRange>{{3, 4}, {4, 6}}));
  EXPECT_EQ(MaximalSubtrees(8, {1, 7}), (std::vector<SlotRange>{{1, 2}, {2, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(MaximalSubtrees(6, {4, 6}), (std::vector<SlotRange>{{4, 6}}));
  EXPECT_TRUE(MaximalSubtrees(8, {3, 3}).empty());
}

// The sum along the tree, written down for 8 slots.
float TreeSum(const std::vector<float>& x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

TEST(SlotTree, SameBitsForEveryNumberOfRanks) {
  constexpr int kSlots = 8;
  // More than one piece, and not a multiple of any rank count before padding.
  constexpr int64_t kElements = 840 * 100;
  std::vector<HostTensor> slots;
  for (int s = 0; s < kSlots; ++s) {
    slots.push_back(RandomTensor(DType::kF32, {kElements}, 100 + s));
  }
  for (int ranks = 1; ranks <= 9; ++ranks) {  // the ninth rank owns no slot
    const int64_t chunk = (kElements + ranks - 1) / ranks;
    RunRanks(ranks, [&](Communicator& comm, kernels::Queue& queue) {
      const SlotRange run = SlotsOfRank(kSlots, ranks, comm.rank());
      std::vector<HostTensor> memory;
      std::vector<Tensor> leaves;
      for (int s = run.begin; s < run.end; ++s) {
        memory.emplace_back(DType::kF32, std::vector<int64_t>{chunk * ranks});
        std::memcpy(memory.back().get().data(), slots[s].get().data(), kElements * 4);
        leaves.push_back(memory.back());
      }
      const HostTensor out(DType::kF32, {chunk});
      const HostTensor scratch(DType::kF32, {DeterministicScratchElements(kSlots, ranks)});
      const absl::Status status =
          DeterministicReduceScatter(comm, "g", kSlots, leaves, out, scratch, queue);
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = 0; i < chunk; ++i) {
        const int64_t element = comm.rank() * chunk + i;
        if (element >= kElements) break;
        std::vector<float> x;
        for (const HostTensor& slot : slots) x.push_back(slot.get().f32()[element]);
        ASSERT_EQ(out.get().f32()[i], TreeSum(x)) << ranks << " ranks, element " << element;
      }
    });
  }
}

}  // namespace
}  // namespace comm
