#include "tools/tokenize/utf8.h"

#include <cstring>

namespace tools {
namespace {

struct Sequence {
  size_t bytes;
  bool well_formed;
};

// The sequence that begins at text[position]: table 3-7 of the Unicode standard.
Sequence SequenceAt(absl::string_view text, size_t position) {
  const uint8_t lead = static_cast<uint8_t>(text[position]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range is narrower after some leads: no overlong forms, no surrogates, nothing
  // above U+10FFFF.
  uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < bytes; ++i) {
    if (position + i == text.size()) return {i, false};
    const uint8_t next = static_cast<uint8_t>(text[position + i]);
    if (next < least || next > most) return {i, false};
    least = 0x80;
    most = 0xBF;
  }
  return {bytes, true};
}

// From here on, how many bytes are ASCII; may stop early.
size_t AsciiAhead(absl::string_view text, size_t position) {
  size_t end = position;
  uint64_t word;
  for (; end + sizeof(word) <= text.size(); end += sizeof(word)) {
    std::memcpy(&word, text.data() + end, sizeof(word));
    if ((word & 0x8080808080808080) != 0) break;
  }
  return end - position;
}

}  // namespace

Malformed FindMalformed(absl::string_view text) {
  Malformed malformed;
  for (size_t i = AsciiAhead(text, 0); i < text.size(); i += AsciiAhead(text, i)) {
    const Sequence sequence = SequenceAt(text, i);
    if (!sequence.well_formed && ++malformed.sequences == 1) malformed.first = i;
    i += sequence.bytes;
  }
  return malformed;
}

std::string ReplaceMalformed(absl::string_view text) {
  std::string replaced;
  replaced.reserve(text.size() + 64);
  for (size_t i = 0; i < text.size();) {
    const Sequence sequence = SequenceAt(text, i);
    if (sequence.well_formed) {
      replaced.append(text.data() + i, sequence.bytes);
    } else {
      AppendUtf8(0xFFFD, &replaced);
    }
    i += sequence.bytes;
  }
  return replaced;
}

void AppendUtf8(char32_t code_point, std::string* text) {
  const auto append = [text](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return append(code_point);
  if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      append(0xE0 | code_point >> 12);
    } else {
      append(0xF0 | code_point >> 18);
      append(0x80 | (code_point >> 12 & 0x3F));
    }
    append(0x80 | (code_point >> 6 & 0x3F));
  }
  append(0x80 | (code_point & 0x3F));
}

}  // namespace tools
