// GPT-2's pre-tokenizer: the pieces of a text that byte-pair merges never cross.
#ifndef DATA_BPE_PRETOKENIZER_H_
#define DATA_BPE_PRETOKENIZER_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace data {

// The length in bytes of the piece that begins at text[begin], begin < text.size(): the first
// match there of GPT-2's pattern
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// From piece to piece this covers the text without gaps. Malformed UTF-8 counts, byte by byte, as
// neither space nor letter nor number.
size_t PieceLength(absl::string_view text, size_t begin);

}  // namespace data

#endif  // DATA_BPE_PRETOKENIZER_H_
