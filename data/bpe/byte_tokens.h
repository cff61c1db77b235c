// GPT-2's ids of the single bytes: 0 to 255, in the order of its encoder's bytes_to_unicode, which
// puts the printable characters of Latin-1 first and the other bytes after them.
#ifndef DATA_BPE_BYTE_TOKENS_H_
#define DATA_BPE_BYTE_TOKENS_H_

#include <array>
#include <cstdint>

namespace data {

inline constexpr int kByteTokens = 256;

namespace internal {

// The bytes that GPT-2's vocabulary file writes as themselves: '!' to '~', U+00A1 to U+00AC and
// U+00AE to U+00FF (not spaces, control characters or the soft hyphen).
constexpr bool IsPrintableLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint8_t, kByteTokens> MakeBytesByToken() {
  std::array<uint8_t, kByteTokens> bytes = {};
  int next = 0;
  for (const bool printable : {true, false}) {
    for (int byte = 0; byte < kByteTokens; ++byte) {
      if (IsPrintableLatin1(byte) == printable) bytes[next++] = static_cast<uint8_t>(byte);
    }
  }
  return bytes;
}

constexpr std::array<uint16_t, kByteTokens> Invert(const std::array<uint8_t, kByteTokens>& bytes) {
  std::array<uint16_t, kByteTokens> tokens = {};
  for (int token = 0; token < kByteTokens; ++token) {
    tokens[bytes[token]] = static_cast<uint16_t>(token);
  }
  return tokens;
}

}  // namespace internal

inline constexpr std::array<uint8_t, kByteTokens> kByteOfToken = internal::MakeBytesByToken();
inline constexpr std::array<uint16_t, kByteTokens> kTokenOfByte = internal::Invert(kByteOfToken);

}  // namespace data

#endif  // DATA_BPE_BYTE_TOKENS_H_
