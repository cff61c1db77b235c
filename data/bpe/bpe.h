// GPT-2's tokenizer: byte-level byte-pair encoding (Sennrich et al., 2016; Radford et al., 2019).
//
//   ABSL_ASSIGN_OR_RETURN(const Bpe bpe, Bpe::Load("vocab.bpe"));
//   std::vector<uint16_t> ids = bpe.Encode("Hello world");  // 15496, 995
#ifndef DATA_BPE_BPE_H_
#define DATA_BPE_BPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/bpe/merger.h"
#include "data/bpe/pair_table.h"

namespace data {

// Ids: 0 to 255 the single bytes (byte_tokens.h), then the longer tokens, and 50256 for the end of
// a text. Immutable once loaded; may be used by several threads at once.
class Bpe {
 public:
  static constexpr uint16_t kEndOfText = 50256;
  static constexpr int kGpt2Merges = 50000;

  // Reads GPT-2's vocab.bpe (also called merges.txt) or a tiktoken file (vocabulary.h). The first
  // part of a vocabulary is one as well. NotFound, or InvalidArgument with the line's number.
  static absl::StatusOr<Bpe> Load(const std::string& path);

  // The ids of the text. No text has an id of its own but those of the vocabulary;
  // "<|endoftext|>" is ordinary text. Any bytes are allowed; Decode gives them back.
  //
  // As the public token shards were made, any two neighbours are merged whose bytes together are a
  // token, the token of least id first, leftmost first. O(n log n) for a piece of n bytes.
  // BpeEncoder is faster for much text.
  std::vector<uint16_t> Encode(absl::string_view text) const;

  // The bytes of the ids; kEndOfText becomes "<|endoftext|>". InvalidArgument, with the position,
  // for an id that this vocabulary has not.
  absl::StatusOr<std::string> Decode(absl::Span<const uint16_t> ids) const;

  // Tokens of more than one byte.
  int merges() const { return static_cast<int>(bytes_of_id_.size()) - 256; }

  // For encoders: the ids of one piece of the pre-tokenizer, appended.
  void AppendPiece(absl::string_view piece, Merger* merger, std::vector<uint16_t>* ids) const;
  const PairTable& pairs() const { return pairs_; }

 private:
  explicit Bpe(std::vector<std::string> bytes_of_id);

  std::vector<std::string> bytes_of_id_;
  absl::flat_hash_map<std::string, uint16_t> id_of_bytes_;
  PairTable pairs_;
};

}  // namespace data

#endif  // DATA_BPE_BPE_H_
