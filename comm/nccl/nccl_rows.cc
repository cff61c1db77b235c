#include "comm/nccl/nccl_rows.h"

namespace comm {
namespace {

bool Failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclResult_t EnqueueRows(const NcclApi& nccl, const RowMoves& moves, ncclComm_t comm,
                         cudaStream_t stream) {
  const char* in = moves.in;
  char* out = moves.out;
  // Both sides leave out what has no rows.
  for (int peer = 0; peer < static_cast<int>(moves.send_counts.size()); ++peer) {
    const int64_t sent = moves.send_counts[peer] * moves.row_bytes;
    const int64_t received = moves.receive_counts[peer] * moves.row_bytes;
    if (sent > 0) {
      const ncclResult_t result = nccl.Send(in, sent, ncclInt8, peer, comm, stream);
      if (Failed(result)) return result;
    }
    if (received > 0) {
      const ncclResult_t result = nccl.Recv(out, received, ncclInt8, peer, comm, stream);
      if (Failed(result)) return result;
    }
    in += sent;
    out += received;
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t GroupedRows(const NcclApi& nccl, const RowMoves& moves, ncclComm_t comm,
                         cudaStream_t stream) {
  const ncclResult_t started = nccl.GroupStart();
  if (Failed(started)) return started;
  const ncclResult_t enqueued = EnqueueRows(nccl, moves, comm, stream);
  const ncclResult_t ended = nccl.GroupEnd();
  return Failed(enqueued) ? enqueued : ended;
}

}  // namespace comm
