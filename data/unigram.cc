#include "data/unigram.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace data {

double UnigramEntropy(const Shard& shard) {
  std::vector<int64_t> counts(UINT16_MAX + 1);
  for (const uint16_t token : shard.tokens()) ++counts[token];
  const double total = static_cast<double>(shard.tokens().size());
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace data
