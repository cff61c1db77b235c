#include "optim/row_moves.h"

#include <vector>

#include "gtest/gtest.h"

namespace optim {
namespace {

using Rows = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

TEST(RowMoves, ASetHasEachRowOnce) {
  RowSet set(5);
  for (const int64_t row : {4, 0, 4, 2}) set.Add(row);
  EXPECT_EQ(set.Ascending(), (Rows{0, 2, 4}));
  set.Clear();
  EXPECT_EQ(set.Ascending(), Rows());
  EXPECT_DEATH(set.Add(5), "row 5 of 5");
}

// Seven rows on three ranks: shards of three, the last one of one row. By hand.
TEST(RowMoves, ListsOfEachRank) {
  const std::vector<Rows> wanted = {{0, 1, 4, 6}, {}, {1, 3, 4, 5}};
  const RowMoves first = MovesOf(wanted, 3, 0);
  EXPECT_EQ(first.wanted, (Rows{0, 1, 4, 6}));
  EXPECT_EQ(first.from_owner, (Counts{2, 1, 1}));
  EXPECT_EQ(first.owned, (Rows{0, 1, 1}));
  EXPECT_EQ(first.for_rank, (Counts{2, 0, 1}));
  const RowMoves second = MovesOf(wanted, 3, 1);
  EXPECT_EQ(second.wanted, Rows());
  EXPECT_EQ(second.from_owner, (Counts{0, 0, 0}));
  EXPECT_EQ(second.owned, (Rows{1, 0, 1, 2}));
  EXPECT_EQ(second.for_rank, (Counts{1, 0, 3}));
  const RowMoves third = MovesOf(wanted, 3, 2);
  EXPECT_EQ(third.from_owner, (Counts{1, 3, 0}));
  EXPECT_EQ(third.owned, (Rows{0}));
  EXPECT_EQ(third.for_rank, (Counts{1, 0, 0}));
  EXPECT_EQ(RowsBetweenRanks(wanted, 3), 6);
  EXPECT_DEATH(MovesOf({{9}}, 3, 0), "rows without an owner");
}

// What one rank sends another is what that one expects, whatever is read.
TEST(RowMoves, BothSidesAgree) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const int64_t rows = 53, shard = (rows + ranks - 1) / ranks;
    std::vector<Rows> wanted(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int32_t row = 0; row < rows; ++row) {
        if ((row * 7 + rank * 3) % (rank + 2) == 0) wanted[rank].push_back(row);
      }
    }
    for (int a = 0; a < ranks; ++a) {
      const RowMoves mine = MovesOf(wanted, shard, a);
      size_t at = 0;
      for (int b = 0; b < ranks; ++b) {
        const RowMoves theirs = MovesOf(wanted, shard, b);
        EXPECT_EQ(mine.from_owner[b], theirs.for_rank[a]);
        // Rank b has the same rows in the same order.
        size_t there = 0;
        for (int before = 0; before < a; ++before) there += theirs.for_rank[before];
        for (int64_t i = 0; i < mine.from_owner[b]; ++i, ++at, ++there) {
          EXPECT_EQ(mine.wanted[at], b * shard + theirs.owned[there]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace optim
