#include "data/bpe/pretokenizer.h"

#include <array>
#include <cstdint>

#include "data/bpe/unicode_classes.h"

namespace data {
namespace {

// Classes of ASCII at hand: a scan of English looks at nothing else.
constexpr std::array<CharClass, 128> MakeAsciiClasses() {
  std::array<CharClass, 128> classes = {};
  for (int c = 0; c < 128; ++c) {
    const int lower = c | 0x20;
    classes[c] = lower >= 'a' && lower <= 'z'           ? CharClass::kLetter
                 : c >= '0' && c <= '9'                 ? CharClass::kNumber
                 : c == ' ' || (c >= '\t' && c <= '\r') ? CharClass::kSpace
                                                        : CharClass::kOther;
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAsciiClasses = MakeAsciiClasses();

// The end of the run of characters of one class.
size_t RunEnd(absl::string_view text, size_t begin, CharClass char_class) {
  size_t end = begin;
  while (end < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[end]);
    if (byte < 0x80) {
      if (kAsciiClasses[byte] != char_class) break;
      ++end;
    } else {
      const Char next = CharAt(text, end);
      if (next.char_class != char_class) break;
      end += next.bytes;
    }
  }
  return end;
}

// The length of the contraction after an apostrophe at text[begin], with it; 0 if there is none.
size_t ContractionLength(absl::string_view text, size_t begin) {
  if (text.size() - begin < 2) return 0;
  const char first = text[begin + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (text.size() - begin < 3) return 0;
  const char second = text[begin + 2];
  const bool three = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
  return three ? 3 : 0;
}

CharClass ClassAt(absl::string_view text, size_t position) {
  const uint8_t byte = static_cast<uint8_t>(text[position]);
  return byte < 0x80 ? kAsciiClasses[byte] : CharAt(text, position).char_class;
}

// Whether a piece ends between any two such characters, whatever is around them. Space joins what
// follows it, and an apostrophe is kOther and may join letters.
bool AlwaysApart(CharClass left, CharClass right) {
  if (left == CharClass::kSpace || left == right) return false;
  return !(left == CharClass::kOther && right == CharClass::kLetter);
}

// The character that ends before text[end], 0 < end; not well-formed if there is none.
Char CharBefore(absl::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
    --begin;
  Char before = CharAt(text, begin);
  if (begin + before.bytes != end) before.well_formed = false;
  return before;
}

}  // namespace

size_t PieceLength(absl::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t length = ContractionLength(text, begin);
    if (length > 0) return length;
  }
  // One space may lead a word, a number or a series of other characters.
  const size_t start = begin + (text[begin] == ' ' && text.size() - begin > 1 ? 1 : 0);
  const CharClass char_class = ClassAt(text, start);
  if (char_class != CharClass::kSpace) return RunEnd(text, start, char_class) - begin;

  // White space; the last of several belongs to what follows them.
  const size_t end = RunEnd(text, begin, CharClass::kSpace);
  size_t last = end - 1;
  while ((static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
  return (end == text.size() || last == begin ? end : last) - begin;
}

size_t LastCut(absl::string_view text, size_t begin, size_t limit) {
  for (size_t cut = limit; cut > begin; --cut) {
    const Char right = CharAt(text, cut);
    if (!right.well_formed) continue;
    const Char left = CharBefore(text, cut);
    if (left.well_formed && AlwaysApart(left.char_class, right.char_class)) return cut;
  }
  return 0;
}

}  // namespace data
