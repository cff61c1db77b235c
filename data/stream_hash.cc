#include "data/stream_hash.h"

#include <cstddef>
#include <vector>

namespace data {
namespace {

// A bijection whose every output bit depends on every input bit: the finaliser of SplitMix64
// (Steele, Lea and Flood, 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Four independent chains, so that the processor does not wait for each product.
uint64_t HashOf(const std::vector<int32_t>& values, uint64_t seed) {
  constexpr size_t kLanes = 4;
  uint64_t lanes[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = Mix(seed + lane + 1);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = (lanes[lane] ^ static_cast<uint32_t>(values[i + lane])) * 0x9E3779B97F4A7C15u;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  uint64_t hash = Mix(values.size());
  for (; i < values.size(); ++i) hash = Mix(hash ^ static_cast<uint32_t>(values[i]));
  for (const uint64_t lane : lanes) hash = Mix(hash ^ lane);
  return hash;
}

}  // namespace

uint64_t HashOfSlot(int64_t step, int64_t slot, const SlotBatch& batch) {
  uint64_t hash = Mix(Mix(static_cast<uint64_t>(step)) + static_cast<uint64_t>(slot));
  hash = HashOf(batch.inputs, hash);
  hash = HashOf(batch.targets, hash);
  return HashOf(batch.boundaries, hash);
}

}  // namespace data
