// What there is to know about a token shard before training on it.
#ifndef TOOLS_INSPECT_SHARD_SHARD_REPORT_H_
#define TOOLS_INSPECT_SHARD_SHARD_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "data/shard.h"

namespace tools {

// Where a document stands in its shard. It begins with BOS, which is counted.
struct Document {
  int64_t begin, length;  // tokens
};

struct ShardReport {
  int64_t tokens;
  // Before the first BOS: the end of a document that began in another shard. All tokens if there
  // is no BOS.
  int64_t tokens_before_documents;
  std::vector<Document> documents;  // in the shard's order
  std::vector<int64_t> counts;      // by token id, 65536 of them
  double unigram_entropy;           // nats per token
  std::vector<std::string> faults;  // why training would fail; with positions and remedy
};

// Faults are tokens from `vocab_size` on, and the lack of any BOS (50256).
ShardReport Inspect(const data::Shard& shard, int64_t vocab_size);

// The least document length that at least `percent` in 100 of the documents do not exceed
// (nearest rank); the shortest for 0. CHECKs that there are documents and 0 <= percent <= 100.
int64_t LengthPercentile(const ShardReport& report, int percent);

// The `count` most frequent ids that occur, most frequent first, the lower id first among equals.
std::vector<uint16_t> MostFrequent(const ShardReport& report, int count);

}  // namespace tools

#endif  // TOOLS_INSPECT_SHARD_SHARD_REPORT_H_
