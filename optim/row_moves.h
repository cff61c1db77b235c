// Which rows of a table move between which ranks, when each rank wants some of them and each owns a
// shard. Pure arithmetic on lists that every rank has, so that nobody has to be asked.
#ifndef OPTIM_ROW_MOVES_H_
#define OPTIM_ROW_MOVES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace optim {

// Rows of a table of so many, each once.
class RowSet {
 public:
  explicit RowSet(int64_t rows) : has_(rows, 0) {}
  // CHECKs that the table has it.
  void Add(int64_t row);
  void Clear();
  int64_t table_rows() const { return static_cast<int64_t>(has_.size()); }
  std::vector<int32_t> Ascending() const;

 private:
  std::vector<uint8_t> has_;
};

// Of one rank. `owner`: rank r owns rows [r shard, (r + 1) shard) of the table.
struct RowMoves {
  std::vector<int32_t> wanted;      // by this rank, ascending, and so owner by owner
  std::vector<int64_t> from_owner;  // how many of these each rank owns
  std::vector<int32_t> owned;       // by this rank, from the shard's first on: rank 0's wants first
  std::vector<int64_t> for_rank;    // how many of these each rank wants
};

// wanted[r]: those of rank r, ascending, each below shard * ranks.
RowMoves MovesOf(absl::Span<const std::vector<int32_t>> wanted, int64_t shard, int rank);

// The rows that ranks want and others own: what crosses links, in either direction.
int64_t RowsBetweenRanks(absl::Span<const std::vector<int32_t>> wanted, int64_t shard);

}  // namespace optim

#endif  // OPTIM_ROW_MOVES_H_
