// Bytes that arrive in any pieces, handed on as whole UTF-8 characters.
#ifndef TOOLS_SAMPLE_UTF8_STREAM_H_
#define TOOLS_SAMPLE_UTF8_STREAM_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tools {

// What cannot become a character is handed on as U+FFFD, as GPT-2's decoder does: one for each
// longest piece that begins as a well-formed sequence does (Unicode 15, 3.9, "maximal subparts").
// A model that draws bytes does write such pieces.
class Utf8Stream {
 public:
  // The characters that are complete with these bytes. The beginning of one is held back.
  std::string Push(absl::string_view bytes);
  // What is held back, as U+FFFD, or nothing.
  std::string Finish();

 private:
  std::string held_;
};

}  // namespace tools

#endif  // TOOLS_SAMPLE_UTF8_STREAM_H_
