// Cuts a shard into global batches: into beginnings of documents, or as the stream of its tokens.
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

// kDocuments: every piece starts at a document's beginning, and a document that does not fit in its
// slot loses its rest. kStream: a batch of B = slots * T inputs is the next B tokens of the shard,
// cut into slots wherever that falls; the next batch goes on behind it.
enum class BatchMode : uint8_t { kDocuments, kStream };

struct BatchOptions {
  int slots = 8;
  int64_t slot_tokens = 0;    // T, inputs of one slot
  int64_t max_doc_len = 0;    // kDocuments: what is beyond is dropped. Not used by kStream
  int64_t max_documents = 0;  // length of SlotBatch::boundaries; 0: DefaultMaxDocuments
  BatchMode mode = BatchMode::kDocuments;
};

// To the next multiple of 128, of kDocuments floor(slot_tokens / 300), as in the track-1 records;
// of kStream floor(slot_tokens / 128). In a sample of 2 million tokens of FineWeb documents have
// 745 tokens on average, but short ones stand together: the fullest 65,536 tokens begin 147 of
// them, the fullest 262,144 tokens 538.
int64_t DefaultMaxDocuments(int64_t slot_tokens, BatchMode mode = BatchMode::kDocuments);
// options.max_documents, or the default in its place.
int64_t MaxDocuments(const BatchOptions& options);

// InvalidArgument if a number is out of range.
absl::Status ValidateBatchOptions(const BatchOptions& options);

// Tokens [begin, end) of a shard: the beginning of one document or, of kStream, a whole slot.
struct Piece {
  int64_t begin, end;
  bool operator==(const Piece& other) const { return begin == other.begin && end == other.end; }
};

struct BatchStats {
  int64_t documents = 0;            // pieces; of kStream, documents that slots have a part of
  int64_t documents_truncated = 0;  // longer than max_doc_len
  int64_t tokens_truncated = 0;     // of them, beyond max_doc_len
  int64_t tokens_cut = 0;           // of documents that did not fit at a slot's end
};

struct BatchPlan {
  std::vector<std::vector<Piece>> slots;  // each slot's pieces sum to slot_tokens + 1
  int64_t next_document = 0;              // where the next batch starts, as in LoaderState
  BatchStats stats;
};

// Tokens that a shard needs for one batch, if no document is cut: slots * (T + 1), and of kStream
// B + 2.
int64_t ShardTokensOfBatch(const BatchOptions& options);

// Plans the global batch that starts with document or, of kStream, token `start` of a shard of
// `tokens` tokens whose documents begin at `bos` (ascending). All slots are planned together, so
// nothing depends on who runs them. Nothing if the shard ends before the batch is full; such a
// batch is dropped as a whole. InvalidArgument if a slot has more documents than its boundaries can
// hold.
//
// kStream, as modded-nanogpt's track 2: slot s has tokens [start + s T, start + (s + 1) T] for
// inputs and targets, both ends included, so that its last target is the next slot's first input.
// The shard has ended when start + B + 1 >= tokens.
absl::StatusOr<std::optional<BatchPlan>> PlanBatch(const BatchOptions& options,
                                                   absl::Span<const int64_t> bos, int64_t tokens,
                                                   int64_t start);

// What the model sees of a slot. T = slot_tokens.
struct SlotBatch {
  std::vector<int32_t> inputs;   // [T]
  std::vector<int32_t> targets;  // [T], the token after each input
  // Where documents begin: 0, ..., T and then T again up to a fixed length. In a slot of a stream
  // the 0 begins the rest of a document from before the slot, empty if BOS is the first input.
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

// The slot of a stream whose inputs are all of `tokens` but the last one: its boundaries are 0 and
// each BOS among them. CHECKs that they are fewer than `max_documents`.
SlotBatch BuildStreamSlot(absl::Span<const uint16_t> tokens, int64_t max_documents,
                          const TokenMap& map);

// Where BOS stands, ascending.
std::vector<int64_t> BosPositions(absl::Span<const uint16_t> tokens);

// Before a batch: where to go on. Document `next_document` of file `file` in epoch `epoch`; of
// kStream, the token at that position of the file.
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
