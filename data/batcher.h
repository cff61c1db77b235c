// Cuts a shard into global batches whose every piece starts at a document's beginning.
#ifndef DATA_BATCHER_H_
#define DATA_BATCHER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/token_map.h"

namespace data {

struct BatchOptions {
  int slots = 8;
  int64_t slot_tokens = 0;    // T, inputs of one slot
  int64_t max_doc_len = 0;    // what is beyond is dropped
  int64_t max_documents = 0;  // length of SlotBatch::boundaries; 0: DefaultMaxDocuments
};

// floor(slot_tokens / 300) to the next multiple of 128, as in the track-1 records.
int64_t DefaultMaxDocuments(int64_t slot_tokens);
// options.max_documents, or the default in its place.
int64_t MaxDocuments(const BatchOptions& options);

// InvalidArgument if a number is out of range.
absl::Status ValidateBatchOptions(const BatchOptions& options);

// Tokens [begin, end) of a shard: the beginning of one document.
struct Piece {
  int64_t begin, end;
  bool operator==(const Piece& other) const { return begin == other.begin && end == other.end; }
};

struct BatchStats {
  int64_t documents = 0;            // pieces
  int64_t documents_truncated = 0;  // longer than max_doc_len
  int64_t tokens_truncated = 0;     // of them, beyond max_doc_len
  int64_t tokens_cut = 0;           // of documents that did not fit at a slot's end
};

struct BatchPlan {
  std::vector<std::vector<Piece>> slots;  // each slot's pieces sum to slot_tokens + 1
  int64_t next_document = 0;              // where the next batch starts
  BatchStats stats;
};

// Plans the global batch that starts with document `first_document` of a shard of `tokens`
// tokens whose documents begin at `bos` (ascending). All slots are planned together, so nothing
// depends on who runs them. Nothing if the shard ends before the batch is full; such a batch is
// dropped as a whole. InvalidArgument if a slot has more documents than its boundaries can hold.
absl::StatusOr<std::optional<BatchPlan>> PlanBatch(const BatchOptions& options,
                                                   absl::Span<const int64_t> bos, int64_t tokens,
                                                   int64_t first_document);

// What the model sees of a slot. T = slot_tokens.
struct SlotBatch {
  std::vector<int32_t> inputs;   // [T]
  std::vector<int32_t> targets;  // [T], the token after each input
  // Where documents begin: 0, ..., T and then T again up to a fixed length.
  std::vector<int32_t> boundaries;
};

struct GlobalBatch {
  std::vector<SlotBatch> slots;
  BatchStats stats;
};

// The planned batch. The tokens have been checked (TokenMap::CheckTokens). The target of a
// document's last token is the next piece's BOS, also if the document was truncated.
GlobalBatch BuildBatch(const BatchOptions& options, const BatchPlan& plan,
                       absl::Span<const uint16_t> tokens, const TokenMap& map);

// Where BOS stands, ascending.
std::vector<int64_t> BosPositions(absl::Span<const uint16_t> tokens);

// Before a batch: where to go on. Document `next_document` of file `file` in epoch `epoch`.
struct LoaderState {
  int64_t epoch = 0;
  int64_t file = 0;
  int64_t next_document = 0;
  bool operator==(const LoaderState& other) const {
    return epoch == other.epoch && file == other.file && next_document == other.next_document;
  }
};

}  // namespace data

#endif  // DATA_BATCHER_H_
