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

// The greatest position in (begin, limit] where `text` can be cut in two, limit < text.size(), such
// that the pieces of both parts are the pieces of the whole, also if more text follows. The
// characters on both sides of a cut are well-formed. 0 if there is none.
size_t LastCut(absl::string_view text, size_t begin, size_t limit);

}  // namespace data

#endif  // DATA_BPE_PRETOKENIZER_H_
