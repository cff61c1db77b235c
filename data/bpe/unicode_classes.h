// The classes of characters that GPT-2's pre-tokenizer tells apart.
#ifndef DATA_BPE_UNICODE_CLASSES_H_
#define DATA_BPE_UNICODE_CLASSES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace data {

enum class CharClass : uint8_t {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s: Unicode's White_Space
  kOther,
};

CharClass Classify(char32_t code_point);

// The class of the character that begins at text[position], and its length in bytes. A byte that
// does not begin a well-formed UTF-8 sequence is a character of its own, kOther.
struct Char {
  CharClass char_class;
  uint8_t bytes;
  bool well_formed;
};
Char CharAt(absl::string_view text, size_t position);

}  // namespace data

#endif  // DATA_BPE_UNICODE_CLASSES_H_
