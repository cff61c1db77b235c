// The merges of byte-pair encoding inside one piece.
#ifndef DATA_BPE_MERGER_H_
#define DATA_BPE_MERGER_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "data/bpe/pair_table.h"

namespace data {

// Keeps its working memory from piece to piece. Not for several threads at once.
class Merger {
 public:
  // The table must outlive this.
  explicit Merger(const PairTable* pairs) : pairs_(*pairs) {}

  // Appends the ids of the piece, which has from 1 to 2^31 bytes: of all neighbours that merge into
  // a token, those of the least token become one, leftmost first, until none are left.
  // O(n log n) for a piece of n bytes; about 36 n bytes of memory.
  void Append(absl::string_view piece, std::vector<uint16_t>* ids);

 private:
  void AppendShort(absl::string_view piece, std::vector<uint16_t>* ids);
  void AppendLong(absl::string_view piece, std::vector<uint16_t>* ids);

  // A token of a long piece: a linked list through the positions where tokens begin.
  struct Symbol {
    uint16_t id;
    uint16_t merged;          // with the next one, or kNone; kNone if this is no token any more
    uint32_t previous, next;  // kEnd at the ends
  };
  void UpdateMerged(uint32_t left);
  void MergeSymbols();

  const PairTable& pairs_;
  std::vector<uint16_t> ids_, merged_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // least first: merged << 32 | position; stale ones are passed over
};

}  // namespace data

#endif  // DATA_BPE_MERGER_H_
