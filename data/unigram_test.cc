#include "data/unigram.h"

#include <cmath>
#include <string>
#include <vector>

#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {
namespace {

double Entropy(const std::vector<uint16_t>& tokens) {
  const std::string path = ::testing::TempDir() + "/unigram_test.bin";
  EXPECT_TRUE(WriteShard(path, tokens).ok());
  const absl::StatusOr<Shard> shard = Shard::Open(path);
  EXPECT_TRUE(shard.ok()) << shard.status();
  return UnigramEntropy(*shard);
}

TEST(Unigram, Entropy) {
  EXPECT_EQ(Entropy({65535, 65535}), 0);
  // Three of four and one of four: a few roundings of numbers below 2.
  EXPECT_NEAR(Entropy({7, 50256, 7, 7}), 2 * std::log(2.0) - 0.75 * std::log(3.0), 1e-15);
  EXPECT_NEAR(Entropy({0, 1, 2, 3, 4}), std::log(5.0), 1e-15);
}

}  // namespace
}  // namespace data
