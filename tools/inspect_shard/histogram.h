// What a shard's tokens and documents are like, as bars.
#ifndef TOOLS_INSPECT_SHARD_HISTOGRAM_H_
#define TOOLS_INSPECT_SHARD_HISTOGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/inspect_shard/shard_report.h"

namespace tools {

struct Bin {
  std::string label;
  int64_t count;
};

// Tokens by id: single bytes, then the longer tokens, four times as many ids in each bin as in
// those before it (GPT-2's common ones come first), end-of-text, and ids beyond if there are any.
std::vector<Bin> IdHistogram(const ShardReport& report);

// Documents by length, from each power of two to the next; from the first bin that is not empty to
// the last.
std::vector<Bin> LengthHistogram(const ShardReport& report);

// A line for each bin: label, count, share of all, and a bar; the longest has 40 characters.
std::string HistogramText(const std::vector<Bin>& bins);

}  // namespace tools

#endif  // TOOLS_INSPECT_SHARD_HISTOGRAM_H_
