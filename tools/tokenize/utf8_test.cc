#include "tools/tokenize/utf8.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

// As Python: bytes.decode("utf-8", errors="replace").
TEST(ReplaceMalformed, OneForEachMaximalSubpart) {
  const std::string bad = "\uFFFD";
  EXPECT_EQ(ReplaceMalformed("plain \u00e9 \u4e2d \U0001f600"), "plain \u00e9 \u4e2d \U0001f600");
  EXPECT_EQ(ReplaceMalformed("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(ReplaceMalformed("\x80\xBF\xFF"), bad + bad + bad);
  EXPECT_EQ(ReplaceMalformed("\xC0\xAF"), bad + bad);  // overlong
  EXPECT_EQ(ReplaceMalformed("\xC3z"), bad + "z");
  EXPECT_EQ(ReplaceMalformed("\xE4\xB8z"), bad + "z");  // two of three: one sequence
  EXPECT_EQ(ReplaceMalformed("\xE4\xB8"), bad);
  EXPECT_EQ(ReplaceMalformed("\xE0\x80\x80"), bad + bad + bad);  // overlong: E0 needs A0 to BF
  EXPECT_EQ(ReplaceMalformed("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(ReplaceMalformed("\xF0\x9F\x98"), bad);              // three of four
  EXPECT_EQ(ReplaceMalformed("\xF0\x9F\x98\xC3\xA9"), bad + "\u00e9");
  EXPECT_EQ(ReplaceMalformed("\xF0\x8F\xBF\xBF"), bad + bad + bad + bad);
  EXPECT_EQ(ReplaceMalformed("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(ReplaceMalformed("\xF4\x8F\xBF\xBF"), "\U0010ffff");
  EXPECT_EQ(ReplaceMalformed("\xF5\x80"), bad + bad);
  EXPECT_EQ(ReplaceMalformed(""), "");
}

TEST(FindMalformed, CountsWhatIsReplaced) {
  EXPECT_EQ(FindMalformed("").sequences, 0);
  EXPECT_EQ(FindMalformed("only ASCII, and \u00e9 \u4e2d \U0001f600 well-formed").sequences, 0);
  for (const std::string before :
       {"", "seven b", "eight by", "\u4e2d\u6587 and ASCII behind it "}) {
    const Malformed malformed = FindMalformed(before + "\xE4\xB8 then much text \x80");
    EXPECT_EQ(malformed.sequences, 2);
    EXPECT_EQ(malformed.first, before.size());
  }
}

TEST(AppendUtf8, EachLength) {
  std::string text;
  for (const char32_t code :
       {U'\0', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xFFFF', U'\x10000', U'\x10FFFF'}) {
    AppendUtf8(code, &text);
  }
  EXPECT_EQ(text, std::string("\0\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80"
                              "\xF4\x8F\xBF\xBF",
                              20));
}

}  // namespace
}  // namespace tools
