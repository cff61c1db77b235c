#include "data/stream_hash.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace data {
namespace {

SlotBatch Slot(int first) {
  SlotBatch slot;
  for (int i = 0; i < 37; ++i) {
    slot.inputs.push_back(first + i);
    slot.targets.push_back(first + i + 1);
  }
  slot.boundaries = {0, 20, 37};
  return slot;
}

TEST(StreamHash, IsOneNumberOnEveryMachine) {
  EXPECT_EQ(HashOfSlot(3, 1, Slot(100)), HashOfSlot(3, 1, Slot(100)));
  EXPECT_EQ(HashOfSlot(3, 1, Slot(100)), UINT64_C(0xE032E3D2B1EAFE9B));
}

// Any other token, place, slot or step is another number, and so is the sum over two slots that
// have changed places, or of which one is there twice.
TEST(StreamHash, TellsStreamsApart) {
  std::set<uint64_t> seen = {HashOfSlot(3, 1, Slot(100))};
  const auto is_new = [&](uint64_t hash) { return seen.insert(hash).second; };
  EXPECT_TRUE(is_new(HashOfSlot(3, 2, Slot(100))));
  EXPECT_TRUE(is_new(HashOfSlot(4, 1, Slot(100))));
  EXPECT_TRUE(is_new(HashOfSlot(1, 3, Slot(100))));
  EXPECT_TRUE(is_new(HashOfSlot(3, 1, Slot(101))));
  for (std::vector<int32_t> SlotBatch::*part :
       {&SlotBatch::inputs, &SlotBatch::targets, &SlotBatch::boundaries}) {
    const size_t size = (Slot(100).*part).size();
    for (size_t i = 0; i < size; ++i) {
      SlotBatch slot = Slot(100);
      (slot.*part)[i] ^= 1;
      EXPECT_TRUE(is_new(HashOfSlot(3, 1, slot))) << i;
      if (i == 0) continue;
      slot = Slot(100);
      std::swap((slot.*part)[i - 1], (slot.*part)[i]);
      EXPECT_TRUE(is_new(HashOfSlot(3, 1, slot))) << i;
    }
    SlotBatch shorter = Slot(100);
    (shorter.*part).pop_back();
    EXPECT_TRUE(is_new(HashOfSlot(3, 1, shorter)));
  }
  EXPECT_TRUE(is_new(HashOfSlot(3, 1, Slot(7)) + HashOfSlot(3, 2, Slot(9))));
  EXPECT_TRUE(is_new(HashOfSlot(3, 1, Slot(9)) + HashOfSlot(3, 2, Slot(7))));
  EXPECT_TRUE(is_new(HashOfSlot(3, 1, Slot(7)) + HashOfSlot(3, 1, Slot(7))));
}

}  // namespace
}  // namespace data
