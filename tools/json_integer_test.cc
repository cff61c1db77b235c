#include "tools/json_integer.h"

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

namespace tools {
namespace {

template <typename Integer>
std::optional<Integer> Get(const char* text) {
  Integer value = 7;
  const bool good = ReadInteger(nlohmann::json::parse(text), &value);
  if (good) return value;
  EXPECT_EQ(value, 7) << text;
  return std::nullopt;
}

TEST(JsonInteger, WhatFits) {
  EXPECT_EQ(Get<int>("3"), 3);
  EXPECT_EQ(Get<int>("-3"), -3);
  EXPECT_EQ(Get<int>("2147483647"), 2147483647);
  EXPECT_EQ(Get<int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(Get<uint64_t>("18446744073709551615"), UINT64_MAX);
}

TEST(JsonInteger, WhatDoesNot) {
  for (const char* text : {"1e300", "3.0", "3.5", "2147483648", "-2147483649",
                           "18446744073709551615", "\"3\"", "true", "null", "[3]", "{}"}) {
    EXPECT_EQ(Get<int>(text), std::nullopt) << text;
  }
  EXPECT_EQ(Get<int64_t>("9223372036854775808"), std::nullopt);
  EXPECT_EQ(Get<uint32_t>("-1"), std::nullopt);
}

}  // namespace
}  // namespace tools
