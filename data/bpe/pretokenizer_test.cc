#include "data/bpe/pretokenizer.h"

#include <string>
#include <vector>

#include "data/bpe/unicode_classes.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(const std::string& text) {
  Pieces pieces;
  for (size_t begin = 0; begin < text.size(); begin += pieces.back().size()) {
    pieces.push_back(text.substr(begin, PieceLength(text, begin)));
  }
  return pieces;
}

// The expected pieces were read off the pattern by hand.

TEST(Pretokenizer, WordsNumbersMarks) {
  EXPECT_EQ(Split("Hello  world12 (a)!"), (Pieces{"Hello", " ", " world", "12", " (", "a", ")!"}));
}

TEST(Pretokenizer, Contractions) {
  EXPECT_EQ(Split("it's 'tis"), (Pieces{"it", "'s", " '", "tis"}));
  EXPECT_EQ(Split("'stop"), (Pieces{"'s", "top"}));
  EXPECT_EQ(Split("IT'S"), (Pieces{"IT", "'", "S"}));
  EXPECT_EQ(Split("x''s"), (Pieces{"x", "''", "s"}));
}

TEST(Pretokenizer, LastOfSeveralSpacesBelongsToWhatFollows) {
  EXPECT_EQ(Split("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(Split("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(Split("a\u3000\u3000b"), (Pieces{"a", "\u3000", "\u3000", "b"}));
  EXPECT_EQ(Split("a  "), (Pieces{"a", "  "}));
  EXPECT_EQ(Split(" "), (Pieces{" "}));
}

TEST(Pretokenizer, MalformedUtf8IsOther) {
  // A lone continuation, an overlong slash, half of U+4F60, a surrogate, more than U+10FFFF.
  for (const std::string bad :
       {"\x80", "\xC0\xAF", "\xE4\xBD", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(Split("a " + bad + "b"), (Pieces{"a", " " + bad, "b"}));
    EXPECT_EQ(Split(bad), (Pieces{bad}));
  }
}

TEST(Pretokenizer, SpacesOfSeveralBytes) {
  EXPECT_EQ(Split("a\u2003 \u3000b"), (Pieces{"a", "\u2003 ", "\u3000", "b"}));
  EXPECT_EQ(Split("\u0085\u00a0"), (Pieces{"\u0085\u00a0"}));
  EXPECT_EQ(Split("\u2003\u2003 b"), (Pieces{"\u2003\u2003", " b"}));
}

TEST(Pretokenizer, ContractionsAtTheEnd) {
  EXPECT_EQ(Split("x'"), (Pieces{"x", "'"}));
  EXPECT_EQ(Split("x'l"), (Pieces{"x", "'", "l"}));
  EXPECT_EQ(Split("x'll"), (Pieces{"x", "'ll"}));
  EXPECT_EQ(Split("'r've'lx"), (Pieces{"'", "r", "'ve", "'", "lx"}));
}

// At each cut that is offered, with all that can be made of these few characters around it.
TEST(LastCut, PiecesOfThePartsAreThoseOfTheWhole) {
  const Pieces alphabet = {"a", "s",      "l",      "'",      " ",   "\n",
                           "7", "\u00e9", "\u3000", "\u0301", "\x80"};
  uint32_t state = 1;
  int cuts = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = 0; i < 9; ++i) {
      state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
      text += alphabet[(state >> 16) % alphabet.size()];
    }
    const Pieces whole = Split(text);
    for (size_t limit = text.size() - 1; limit > 0; --limit) {
      const size_t cut = LastCut(text, 0, limit);
      if (cut == 0) break;
      ASSERT_LE(cut, limit);
      Pieces parts = Split(text.substr(0, cut));
      for (const std::string& piece : Split(text.substr(cut))) parts.push_back(piece);
      ASSERT_EQ(parts, whole) << text << " at " << cut;
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 20000);
}

TEST(LastCut, Positions) {
  EXPECT_EQ(LastCut("one two three", 0, 12), 7u);
  EXPECT_EQ(LastCut("one two three", 0, 7), 7u);
  EXPECT_EQ(LastCut("one two three", 0, 6), 3u);
  EXPECT_EQ(LastCut("one two three", 3, 6), 0u);
  EXPECT_EQ(LastCut("aaaa", 0, 3), 0u);
  EXPECT_EQ(LastCut("  aa", 0, 3), 0u);
  EXPECT_EQ(LastCut("it's", 0, 3), 2u);
  EXPECT_EQ(LastCut("\u4e2d\u6587\u3002\u4e2d", 0, 11), 6u);  // before the full stop
  EXPECT_EQ(LastCut("\u4e2d\x80 a", 0, 5), 0u);               // malformed next to it
}

TEST(UnicodeClasses, EdgesOfRanges) {
  EXPECT_EQ(Classify('@'), CharClass::kOther);
  EXPECT_EQ(Classify('A'), CharClass::kLetter);
  EXPECT_EQ(Classify('Z'), CharClass::kLetter);
  EXPECT_EQ(Classify('['), CharClass::kOther);
  EXPECT_EQ(Classify('0'), CharClass::kNumber);
  EXPECT_EQ(Classify(0x00BD), CharClass::kNumber);  // one half
  EXPECT_EQ(Classify(0x00D7), CharClass::kOther);   // multiplication sign, between letters
  EXPECT_EQ(Classify(0x2167), CharClass::kNumber);  // Roman numeral eight
  EXPECT_EQ(Classify(0x0301), CharClass::kOther);   // a combining mark
  EXPECT_EQ(Classify(0x4E00), CharClass::kLetter);
  EXPECT_EQ(Classify(0x00A0), CharClass::kSpace);
  EXPECT_EQ(Classify(0x0085), CharClass::kSpace);
  EXPECT_EQ(Classify(0x001C), CharClass::kOther);  // a space for Python's str.isspace, not here
  EXPECT_EQ(Classify(0x200B), CharClass::kOther);  // zero width space
  EXPECT_EQ(Classify(0xFFFD), CharClass::kOther);
  EXPECT_EQ(Classify(0xFFFF), CharClass::kOther);
  EXPECT_EQ(Classify(0x10000), CharClass::kLetter);  // Linear B, the first of the second plane
  EXPECT_EQ(Classify(0x10107), CharClass::kNumber);  // Aegean one
  EXPECT_EQ(Classify(0x1F600), CharClass::kOther);
  EXPECT_EQ(Classify(0x20000), CharClass::kLetter);
  EXPECT_EQ(Classify(0x10FFFF), CharClass::kOther);
}

}  // namespace
}  // namespace data
