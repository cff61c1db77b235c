// One field of a line of JSONL.
#ifndef TOOLS_TOKENIZE_JSON_LINE_H_
#define TOOLS_TOKENIZE_JSON_LINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// The string that the object on this line has under `field`, with its escapes resolved; the last
// one if there are several, as Python's json. The whole line is checked: strict JSON, but NaN,
// Infinity and -Infinity are numbers, which Python writes. Escapes of two surrogates that form a
// pair are one character. Others become U+FFFD, as tiktoken encodes such strings of Python.
//
// InvalidArgument, with the position in the line for what is not JSON: also if the line holds no
// object, or the field is missing or no string. Needs no stack for deep nesting.
absl::StatusOr<std::string> StringField(absl::string_view line, absl::string_view field);

}  // namespace tools

#endif  // TOOLS_TOKENIZE_JSON_LINE_H_
