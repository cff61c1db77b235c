// The validation stream: the first tokens of the first validation file, cut into equal slots.
#ifndef DATA_VALIDATION_H_
#define DATA_VALIDATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batcher.h"
#include "data/shard.h"
#include "data/token_map.h"

namespace data {

// Slot j takes tokens [j T, (j + 1) T) as inputs and those one further as targets, whatever the
// number of ranks. Slots are not aligned with documents, and documents are not truncated: a
// slot normally begins with the tail of a document, whose context is lost. Slot() is const and
// may be called from several threads.
class ValidationStream {
 public:
  // Reads `slots` slots of `slot_tokens` tokens, and one token more, from files[0]; later files
  // are not used. `max_documents` is the length of SlotBatch::boundaries, 0: DefaultMaxDocuments.
  // OutOfRange if the first file holds too few tokens; InvalidArgument if a slot has more
  // documents than the boundaries can hold; errors of Shard::Open and TokenMap::CheckTokens.
  static absl::StatusOr<ValidationStream> Create(const std::vector<std::string>& files, int slots,
                                                 int64_t slot_tokens, int64_t max_documents,
                                                 const TokenMap& token_map);

  int slots() const { return slots_; }
  int64_t max_documents() const { return max_documents_; }
  SlotBatch Slot(int j) const;

 private:
  ValidationStream(Shard shard, int slots, int64_t slot_tokens, int64_t max_documents,
                   const TokenMap& token_map);
  absl::Status CheckBoundaries() const;

  Shard shard_;
  int slots_;
  int64_t slot_tokens_;
  int64_t max_documents_;
  TokenMap token_map_;
};

}  // namespace data

#endif  // DATA_VALIDATION_H_
