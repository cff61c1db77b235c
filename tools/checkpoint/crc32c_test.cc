#include "tools/checkpoint/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, PublishedValues) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  for (int i = 31; i >= 0; --i) falling += static_cast<char>(i);
  for (const auto crc : {Crc32c, PortableCrc32c}) {
    EXPECT_EQ(crc(0, ""), 0u);
    EXPECT_EQ(crc(0, "123456789"), 0xE3069283u);
    EXPECT_EQ(crc(0, std::string(32, '\0')), 0x8A9136AAu);
    EXPECT_EQ(crc(0, std::string(32, '\xFF')), 0x62A8AB43u);
    EXPECT_EQ(crc(0, rising), 0x46DD794Eu);
    EXPECT_EQ(crc(0, falling), 0x113FDB5Cu);
  }
}

TEST(Crc32c, InPiecesOfAnySize) {
  std::string data;
  for (int i = 0; i < 100; ++i) data += static_cast<char>(i * 37);
  const uint32_t whole = PortableCrc32c(0, data);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const absl::string_view head = absl::string_view(data).substr(0, cut);
    const absl::string_view tail = absl::string_view(data).substr(cut);
    EXPECT_EQ(Crc32c(Crc32c(0, head), tail), whole) << cut;
    EXPECT_EQ(PortableCrc32c(PortableCrc32c(0, head), tail), whole) << cut;
  }
}

}  // namespace
}  // namespace tools
