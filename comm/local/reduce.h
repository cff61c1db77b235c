// The data movement of each collective among ranks that share memory.
#ifndef COMM_LOCAL_REDUCE_H_
#define COMM_LOCAL_REDUCE_H_

#include <vector>

#include "comm/communicator.h"

namespace comm {

enum class CollectiveKind : uint8_t {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kAllToAllRows,
  kBarrier
};

// What ranks send to each and expect of each in kAllToAllRows.
struct RowCounts {
  std::vector<int64_t> send, receive;
};

// out = the reduction of all ranks' parts, added in rank order in f32 and rounded once.
//   parts  of the dtype (f32 or bf16) and size of `out`, which may be one of them; else no overlap
void AddInRankOrder(const std::vector<kernels::Tensor>& parts, ReduceOp op, kernels::Tensor out);

// Runs one collective over all ranks' tensors (as Communicator names them). Adds in rank order
// in f32, element by element, so tensors may alias as Communicator allows.
void MoveData(CollectiveKind kind, ReduceOp op, int root, const std::vector<kernels::Tensor>& in,
              const std::vector<kernels::Tensor>& out);
// kAllToAllRows, with counts that go together.
void MoveRows(const std::vector<RowCounts>& counts, const std::vector<kernels::Tensor>& in,
              const std::vector<kernels::Tensor>& out);

}  // namespace comm

#endif  // COMM_LOCAL_REDUCE_H_
