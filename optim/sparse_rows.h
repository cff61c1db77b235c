// Tables of which a rank reads few rows (ParamRow::sparse_rows): what the ranks exchange of them.
//
// Every rank holds the table [V, D] and owns a shard of its rows. A cycle is the steps up to and
// including one in which the table is due. Then each rank sends the gradient's rows that it has
// read in the cycle to their owners, which add them in rank order and update all of their shards,
// rows that nobody has read too. Of the new weights each rank gets the rows that it will read in
// the next cycle; what else its copy holds is out of date until GatherTables. Every rank knows what
// all of them read, so the lists need no exchange.
#ifndef OPTIM_SPARSE_ROWS_H_
#define OPTIM_SPARSE_ROWS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "optim/optimizer_state.h"
#include "optim/param_table.h"
#include "optim/row_moves.h"
#include "optim/sharded_buffer.h"

namespace optim {

// What the forward passes read, known ahead.
class RowReads {
 public:
  virtual ~RowReads() = default;
  // Adds to rows[r] all rows that rank r reads in step `step`, which is the current one or one of
  // the cycle after it; of a step that the run does not have, none. The same on all ranks.
  virtual absl::Status Add(int64_t step, std::vector<RowSet>* rows) = 0;
};

// All such tables of an optimizer; they have one number of rows and one cadence.
class SparseTables {
 public:
  struct Table {
    int number;  // its buffer's in the step's layout
    ShardedBuffer* buffer;
  };
  // `row`: one of their rows of the param table, for the cadence.
  // Plans its memory in `plan`: for each table two stages as large as itself in f32, since nothing
  // bounds how many rows a cycle reads. Buffers, `comm` and `reads` outlive the object.
  SparseTables(const ParamRow& row, const std::vector<Table>& tables, comm::Communicator& comm,
               RowReads& reads, kernels::ArenaPlan* plan);
  void Bind(const kernels::Arena& arena);

  // Whether buffer `number` is one of them.
  bool Has(int number) const { return tables_.count(number) > 0; }
  // Before the schedule of step `step`. Errors are RowReads'.
  absl::Status BeginStep(int64_t step, kernels::Queue& queue);

  // In place of ShardedBuffer's, of buffer `number`; own_gradient() and own_value() are as after
  // those.
  void LaunchReduce(int number, kernels::Queue& queue);
  absl::Status WaitReduce(int number, kernels::Queue& queue);
  void LaunchGather(int number, kernels::Queue& queue);
  absl::Status FinishGather(int number, kernels::Queue& queue);
  void Drain(kernels::Queue& queue);

  // Collective: all rows of all tables are up to date on all ranks.
  absl::Status GatherTables(kernels::Queue& queue);

  // No gradient waits any more.
  void Forget();
  // Gradients that wait, of a state that was loaded: rank 0 has their sum.
  void LoadState(const OptimizerState& state);

 private:
  struct Exchange {
    ShardedBuffer* buffer;
    int64_t dim;
    kernels::TensorId wanted_stage_id, owned_stage_id;
    // f32 [V, D] and [ranks * shard, D]; weights lie in them as their own dtype.
    kernels::Tensor wanted_stage, owned_stage;
    comm::Future future;
  };
  // Lists of one direction of one cycle, on the host and on the device.
  struct Lists {
    RowMoves moves;
    kernels::TensorId wanted_id, owned_id;
    kernels::Tensor wanted, owned;  // i32, their leading entries are in use
    kernels::Tensor Wanted() const { return wanted.Slice(0, Size(moves.wanted)); }
    kernels::Tensor Owned() const { return owned.Slice(0, Size(moves.owned)); }
    static int64_t Size(const std::vector<int32_t>& rows) {
      return static_cast<int64_t>(rows.size());
    }
  };
  void MakeLists(const std::vector<RowSet>& rows, Lists* lists, kernels::Queue& queue) const;

  const ParamRow row_;
  comm::Communicator& comm_;
  RowReads& reads_;
  std::map<int, Exchange> tables_;  // by number
  int64_t rows_ = 0, shard_ = 0;    // of a table, and of it a rank's at most
  std::vector<RowSet> current_;     // by rank: read in this cycle
  int64_t known_before_ = 0;        // of the steps before it, current_ is complete
  Lists gradients_, weights_;       // of the latest step that was due
  bool stale_ = false;              // some rows of some rank's tables are out of date
};

}  // namespace optim

#endif  // OPTIM_SPARSE_ROWS_H_
