#include "tools/trainer/crc32c.h"

#include <array>

namespace tools {
namespace {

// The remainders of all bytes; the polynomial's bits are reversed, as the least significant bit of
// a byte comes first.
constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82F63B78u : 0u);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(absl::string_view data) {
  uint32_t crc = ~0u;
  for (const char byte : data) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

}  // namespace tools
