#include "optim/row_moves.h"

#include <algorithm>

#include "third_party/absl_compat/check.h"

namespace optim {
namespace {

using Rows = std::vector<int32_t>;

// Those of an ascending list that rank `owner` owns.
absl::Span<const int32_t> OwnedBy(const Rows& rows, int64_t shard, int owner) {
  const auto first = std::lower_bound(rows.begin(), rows.end(), owner * shard);
  const auto last = std::lower_bound(first, rows.end(), (owner + 1) * shard);
  return absl::MakeConstSpan(rows).subspan(first - rows.begin(), last - first);
}

}  // namespace

void RowSet::Add(int64_t row) {
  CHECK(row >= 0 && row < table_rows()) << "row " << row << " of " << table_rows();
  has_[row] = 1;
}

void RowSet::Clear() { std::fill(has_.begin(), has_.end(), 0); }

std::vector<int32_t> RowSet::Ascending() const {
  std::vector<int32_t> rows;
  for (size_t row = 0; row < has_.size(); ++row) {
    if (has_[row] != 0) rows.push_back(static_cast<int32_t>(row));
  }
  return rows;
}

RowMoves MovesOf(absl::Span<const Rows> wanted, int64_t shard, int rank) {
  const int ranks = static_cast<int>(wanted.size());
  RowMoves moves;
  moves.wanted = wanted[rank];
  int64_t all = 0;
  for (int other = 0; other < ranks; ++other) {
    moves.from_owner.push_back(static_cast<int64_t>(OwnedBy(wanted[rank], shard, other).size()));
    all += moves.from_owner.back();
    const absl::Span<const int32_t> theirs = OwnedBy(wanted[other], shard, rank);
    moves.for_rank.push_back(static_cast<int64_t>(theirs.size()));
    for (const int32_t row : theirs) {
      moves.owned.push_back(static_cast<int32_t>(row - rank * shard));
    }
  }
  CHECK_EQ(all, static_cast<int64_t>(moves.wanted.size())) << "rows without an owner";
  return moves;
}

int64_t RowsBetweenRanks(absl::Span<const Rows> wanted, int64_t shard) {
  int64_t rows = 0;
  for (int rank = 0; rank < static_cast<int>(wanted.size()); ++rank) {
    rows += static_cast<int64_t>(wanted[rank].size() - OwnedBy(wanted[rank], shard, rank).size());
  }
  return rows;
}

}  // namespace optim
