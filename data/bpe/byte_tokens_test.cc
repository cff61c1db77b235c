#include "data/bpe/byte_tokens.h"

#include "gtest/gtest.h"

namespace data {
namespace {

// As in GPT-2's encoder.json, whose words for these are !, ~, U+00A1, U+00AC, U+00AE, U+00FF, then
// from U+0100 on the bytes that are not printable.
TEST(ByteTokens, OrderOfGpt2) {
  EXPECT_EQ(kTokenOfByte['!'], 0);
  EXPECT_EQ(kTokenOfByte['A'], 32);
  EXPECT_EQ(kTokenOfByte['~'], 93);
  EXPECT_EQ(kTokenOfByte[0xA1], 94);
  EXPECT_EQ(kTokenOfByte[0xAC], 105);
  EXPECT_EQ(kTokenOfByte[0xAE], 106);
  EXPECT_EQ(kTokenOfByte[0xFF], 187);
  EXPECT_EQ(kTokenOfByte[0x00], 188);
  EXPECT_EQ(kTokenOfByte['\n'], 198);
  EXPECT_EQ(kTokenOfByte[' '], 220);
  EXPECT_EQ(kTokenOfByte[0x7F], 221);
  EXPECT_EQ(kTokenOfByte[0xA0], 254);
  EXPECT_EQ(kTokenOfByte[0xAD], 255);
}

TEST(ByteTokens, ThereAndBack) {
  for (int byte = 0; byte < kByteTokens; ++byte) EXPECT_EQ(kByteOfToken[kTokenOfByte[byte]], byte);
}

}  // namespace
}  // namespace data
