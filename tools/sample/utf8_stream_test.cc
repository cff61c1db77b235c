#include "tools/sample/utf8_stream.h"

#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

const char kBad[] = "\xEF\xBF\xBD";  // U+FFFD

// Byte by byte; no piece handed on ends within a character.
std::string ByteByByte(const std::string& bytes) {
  Utf8Stream stream;
  std::string all;
  for (char byte : bytes) all += stream.Push(std::string(1, byte));
  return all + stream.Finish();
}

TEST(Utf8Stream, HoldsBackWhatIsNotComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xC3"), "a");
  EXPECT_EQ(stream.Push("\xA9"), "\xC3\xA9");  // é
  EXPECT_EQ(stream.Push("\xF0\x9F"), "");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80!"), "\xF0\x9F\x98\x80!");  // U+1F600
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8Stream, WellFormedTextStaysAsItIs) {
  const std::string text =
      "plain, \xC3\xA9t\xC3\xA9, \xE4\xB8\xAD\xE6\x96\x87, \xF0\x9F\x98\x80, "
      "\xED\x9F\xBF \xEE\x80\x80 \xF4\x8F\xBF\xBF \x7F\n";
  EXPECT_EQ(ByteByByte(text), text);
  Utf8Stream stream;
  EXPECT_EQ(stream.Push(text), text);
}

TEST(Utf8Stream, WhatIsMalformedBecomesOneReplacementEach) {
  const std::string bad = kBad;
  EXPECT_EQ(ByteByByte("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(ByteByByte("\xFF\xFE"), bad + bad);
  EXPECT_EQ(ByteByByte("\xC3"), bad);                      // the text ends within a character
  EXPECT_EQ(ByteByByte("\xE4\xB8z"), bad + "z");           // two bytes of three
  EXPECT_EQ(ByteByByte("\xC0\xAF"), bad + bad);            // an overlong form
  EXPECT_EQ(ByteByByte("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(ByteByByte("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
  EXPECT_EQ(ByteByByte("\xC3\xC3\xA9"), bad + "\xC3\xA9");
}

TEST(Utf8Stream, FinishForgets) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xE4\xB8"), "");
  EXPECT_EQ(stream.Finish(), kBad);
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push("\xAD"), kBad);
}

}  // namespace
}  // namespace tools
