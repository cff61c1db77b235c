// Malformed UTF-8, as Python's decoder treats it with errors="replace".
#ifndef TOOLS_TOKENIZE_UTF8_H_
#define TOOLS_TOKENIZE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tools {

// What is malformed in a text. A sequence is the longest beginning of a well-formed character, or
// one byte that begins none (Unicode's "substitution of maximal subparts").
struct Malformed {
  int64_t sequences = 0;
  size_t first = 0;  // the position of the first one
};

Malformed FindMalformed(absl::string_view text);

// The text with U+FFFD in place of each malformed sequence.
std::string ReplaceMalformed(absl::string_view text);

// Appends the character's UTF-8. No surrogate, at most U+10FFFF.
void AppendUtf8(char32_t code_point, std::string* text);

}  // namespace tools

#endif  // TOOLS_TOKENIZE_UTF8_H_
