// Which tokens two neighbouring tokens merge into.
#ifndef DATA_BPE_PAIR_TABLE_H_
#define DATA_BPE_PAIR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace data {

// A hash table with open addressing; at most half full. Ids are below kNone.
class PairTable {
 public:
  static constexpr uint16_t kNone = UINT16_MAX;

  // Room for `pairs` pairs.
  explicit PairTable(size_t pairs) {
    while ((size_t{1} << log_slots_) < 2 * pairs) ++log_slots_;
    slots_.assign(size_t{1} << log_slots_, kEmpty);
  }

  // The pair is not in the table yet.
  void Insert(uint16_t left, uint16_t right, uint16_t merged) {
    size_t slot = SlotOf(Key(left, right));
    while (slots_[slot] != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = uint64_t{Key(left, right)} << 16 | merged;
  }

  // The token that the two become, or kNone.
  uint16_t Find(uint16_t left, uint16_t right) const {
    const uint32_t key = Key(left, right);
    for (size_t slot = SlotOf(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      const uint64_t entry = slots_[slot];
      if (entry >> 16 == key) return static_cast<uint16_t>(entry);
      if (entry == kEmpty) return kNone;
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair: keys have 32 bits

  static uint32_t Key(uint16_t left, uint16_t right) { return uint32_t{left} << 16 | right; }
  // Fibonacci hashing (Knuth, volume 3, 6.4): the high bits of a product.
  size_t SlotOf(uint32_t key) const {
    return (key * uint64_t{0x9E3779B97F4A7C15}) >> (64 - log_slots_);
  }

  int log_slots_ = 1;
  std::vector<uint64_t> slots_;  // key << 16 | merged
};

}  // namespace data

#endif  // DATA_BPE_PAIR_TABLE_H_
