#include "data/bpe/merger.h"

#include <string>
#include <vector>

#include "data/bpe/byte_tokens.h"
#include "data/bpe/pair_table.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Ids = std::vector<uint16_t>;

TEST(PairTable, FindsWhatIsThereAndNothingElse) {
  PairTable table(3000);
  for (uint16_t i = 0; i < 3000; ++i) table.Insert(i, i / 7, i + 1);
  for (uint16_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(table.Find(i, i / 7), i + 1);
    EXPECT_EQ(table.Find(i, i / 7 + 1), PairTable::kNone);
  }
  EXPECT_EQ(PairTable(0).Find(1, 2), PairTable::kNone);
}

// The definition: look at all neighbours, merge the first of those with the least token, again.
Ids Oracle(const std::string& piece, const PairTable& pairs) {
  Ids ids;
  for (const char c : piece) ids.push_back(kTokenOfByte[static_cast<uint8_t>(c)]);
  while (true) {
    size_t best = 0;
    uint16_t least = PairTable::kNone;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const uint16_t merged = pairs.Find(ids[i], ids[i + 1]);
      if (merged < least) {
        least = merged;
        best = i;
      }
    }
    if (least == PairTable::kNone) return ids;
    ids[best] = least;
    ids.erase(ids.begin() + best + 1);
  }
}

// Few letters and merges that compete for them; lengths on both sides of where the method changes.
TEST(Merger, IsTheDefinition) {
  const uint16_t a = kTokenOfByte['a'], b = kTokenOfByte['b'], c = kTokenOfByte['c'];
  PairTable pairs(8);
  pairs.Insert(a, b, 300);
  pairs.Insert(b, a, 301);
  pairs.Insert(300, 300, 299);  // of lower id than its parts
  pairs.Insert(a, a, 302);
  pairs.Insert(302, 301, 303);
  pairs.Insert(301, c, 304);
  pairs.Insert(c, 299, 305);
  pairs.Insert(302, 302, 306);
  Merger merger(&pairs);
  uint32_t state = 3;
  for (int size = 1; size < 400; ++size) {
    std::string piece;
    for (int i = 0; i < size; ++i) {
      state = state * 1664525 + 1013904223;
      piece += "aaabbc"[(state >> 16) % 6];
    }
    Ids ids = {9};
    merger.Append(piece, &ids);
    Ids expected = {9};
    for (const uint16_t id : Oracle(piece, pairs)) expected.push_back(id);
    ASSERT_EQ(ids, expected) << piece;
  }
}

}  // namespace
}  // namespace data
