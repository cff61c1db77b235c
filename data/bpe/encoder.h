// GPT-2's tokenizer for much text.
//
//   BpeEncoder encoder(&bpe);
//   for (const std::string& text : texts) encoder.Append(text, &ids);
#ifndef DATA_BPE_ENCODER_H_
#define DATA_BPE_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "data/bpe/bpe.h"
#include "data/bpe/merger.h"

namespace data {

// Gives the ids of Bpe::Encode, but remembers those of common short pieces: 2 MiB in all, whatever
// the text. Not for several threads at once: each has its own.
class BpeEncoder {
 public:
  // `bpe` must outlive this.
  explicit BpeEncoder(const Bpe* bpe);

  // Appends the ids of the text.
  void Append(absl::string_view text, std::vector<uint16_t>* ids);

 private:
  static constexpr size_t kKeyBytes = 16;
  static constexpr size_t kMaxIds = 6;
  static constexpr int kLogSets = 15;

  // The bytes of a piece of up to kKeyBytes, and zeros.
  struct Key {
    uint64_t low, high;
    bool operator==(const Key& other) const { return low == other.low && high == other.high; }
  };
  // A piece and its ids.
  struct Entry {
    Key key;
    uint16_t ids[kMaxIds];
    uint8_t length;  // of the piece; 0: empty
    uint8_t count;   // of the ids
  };
  // Where a piece may be: one cache line. The first entry is the one that was used last.
  struct alignas(64) Set {
    Entry entries[2];
  };
  struct Piece {
    absl::string_view bytes;
    Key key;   // of a piece that may be remembered
    Set* set;  // null for a longer one
  };

  Piece MakePiece(absl::string_view text, size_t begin);
  void AppendPiece(const Piece& piece, std::vector<uint16_t>* ids);
  void AppendNewPiece(const Piece& piece, std::vector<uint16_t>* ids);

  const Bpe& bpe_;
  Merger merger_;
  std::vector<Set> sets_;
};

}  // namespace data

#endif  // DATA_BPE_ENCODER_H_
