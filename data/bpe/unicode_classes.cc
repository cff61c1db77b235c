#include "data/bpe/unicode_classes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

namespace data {
namespace {

struct Range {
  char32_t first, last;
};

#include "data/bpe/unicode_ranges.inc"

constexpr Range kSpaces[] = {
    {0x0009, 0x000D}, {0x0020, 0x0020}, {0x0085, 0x0085}, {0x00A0, 0x00A0}, {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

constexpr char32_t kTableSize = 0x10000;
using Table = std::array<CharClass, kTableSize>;

template <size_t kCount>
constexpr void Fill(const Range (&ranges)[kCount], CharClass char_class, Table* table) {
  for (const Range& range : ranges) {
    for (char32_t code_point = range.first; code_point <= range.last && code_point < kTableSize;
         ++code_point) {
      (*table)[code_point] = char_class;
    }
  }
}

constexpr Table MakeTable() {
  Table table = {};
  for (CharClass& char_class : table) char_class = CharClass::kOther;
  Fill(kLetters, CharClass::kLetter, &table);
  Fill(kNumbers, CharClass::kNumber, &table);
  Fill(kSpaces, CharClass::kSpace, &table);
  return table;
}

// All text but rare scripts and emoji is in the first plane, which needs no search.
constexpr Table kTable = MakeTable();

template <size_t kCount>
bool Contains(const Range (&ranges)[kCount], char32_t code_point) {
  const Range* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && code_point <= std::prev(after)->last;
}

constexpr Char kMalformed = {CharClass::kOther, 1, false};

}  // namespace

CharClass Classify(char32_t code_point) {
  if (code_point < kTableSize) return kTable[code_point];
  if (Contains(kLetters, code_point)) return CharClass::kLetter;
  if (Contains(kNumbers, code_point)) return CharClass::kNumber;
  return CharClass::kOther;  // no space is beyond the first plane
}

// The well-formed sequences are those of table 3-7 of the Unicode standard: no overlong forms, no
// surrogates, nothing above U+10FFFF.
Char CharAt(absl::string_view text, size_t position) {
  const uint8_t lead = static_cast<uint8_t>(text[position]);
  if (lead < 0x80) return {kTable[lead], 1, true};
  if (lead < 0xC2 || lead > 0xF4) return kMalformed;
  const int bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() - position < static_cast<size_t>(bytes)) return kMalformed;

  char32_t code_point = lead & (0x7F >> bytes);
  for (int i = 1; i < bytes; ++i) {
    const uint8_t next = static_cast<uint8_t>(text[position + i]);
    if ((next & 0xC0) != 0x80) return kMalformed;
    code_point = code_point << 6 | (next & 0x3F);
  }
  const char32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < least || surrogate || code_point > 0x10FFFF) return kMalformed;
  return {Classify(code_point), static_cast<uint8_t>(bytes), true};
}

}  // namespace data
