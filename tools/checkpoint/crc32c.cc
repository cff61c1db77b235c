#include "tools/checkpoint/crc32c.h"

#include <array>
#include <cstring>

namespace tools {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // bits reversed, as the sum is

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ (sum & 1 ? kPolynomial : 0);
    table[byte] = sum;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t Sse42Crc32c(uint32_t before, absl::string_view data) {
  uint64_t sum = ~before;
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    sum = __builtin_ia32_crc32di(sum, word);
  }
  auto rest = static_cast<uint32_t>(sum);
  for (; left > 0; --left, ++at) {
    rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*at));
  }
  return ~rest;
}
#endif

}  // namespace

uint32_t PortableCrc32c(uint32_t before, absl::string_view data) {
  uint32_t sum = ~before;
  for (const char c : data) sum = (sum >> 8) ^ kTable[(sum ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~sum;
}

uint32_t Crc32c(uint32_t before, absl::string_view data) {
#ifdef __x86_64__
  static const bool kHasInstruction = __builtin_cpu_supports("sse4.2");
  if (kHasInstruction) return Sse42Crc32c(before, data);
#endif
  return PortableCrc32c(before, data);
}

}  // namespace tools
