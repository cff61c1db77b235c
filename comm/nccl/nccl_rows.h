// Rows of differing numbers between all ranks, as sends and receives of one group.
#ifndef COMM_NCCL_NCCL_ROWS_H_
#define COMM_NCCL_NCCL_ROWS_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>

#include "absl/types/span.h"
#include "comm/nccl/nccl_api.h"

namespace comm {

// One entry of the counts for each rank; rows lie in the order of the ranks.
struct RowMoves {
  const char* in;
  absl::Span<const int64_t> send_counts;
  char* out;
  absl::Span<const int64_t> receive_counts;
  int64_t row_bytes;
};

// Enqueues them. The group is ended also after an error, which is the answer then.
ncclResult_t GroupedRows(const NcclApi& nccl, const RowMoves& moves, ncclComm_t comm,
                         cudaStream_t stream);

}  // namespace comm

#endif  // COMM_NCCL_NCCL_ROWS_H_
