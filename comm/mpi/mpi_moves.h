// Open MPI's nonblocking collectives over tensors of any size. They move bytes and add nothing:
// the adding is comm/local/reduce.h's, in rank order.
#ifndef COMM_MPI_MPI_MOVES_H_
#define COMM_MPI_MPI_MOVES_H_

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace comm {

// Starts a collective on `comm` and appends its requests. Answers MPI_SUCCESS or what MPI says;
// requests that were appended before an error are under way.
using MpiStart = std::function<int(MPI_Comm comm, std::vector<MPI_Request>& requests)>;

// MPI counts in int. So each collective is cut into pieces of at most `piece` bytes (of each rank),
// one request each; the ranks have to agree about it.

// Block r of `in` goes to rank r, block r of `out` comes from it.  in, out  [size * bytes]
MpiStart AllToAll(const void* in, void* out, int64_t bytes, int64_t piece);
// Block r of `out` is rank r's `in`; `in` may be the rank's own block.  in  [bytes]
MpiStart AllGather(const void* in, void* out, int64_t bytes, int64_t piece);
// x is the root's x.  [bytes]
MpiStart Broadcast(void* x, int64_t bytes, int root, int64_t piece);
// Rows of `row_bytes`, send_counts[r] of `in` to rank r, receive_counts[r] of it to `out`, both in
// the order of the ranks. One request, which counts rows (CHECK that these are below 2^31), as no
// rank knows the other pairs' counts, by which pieces would have to be cut.
MpiStart AllToAllRows(const void* in, const std::vector<int64_t>& send_counts, void* out,
                      const std::vector<int64_t>& receive_counts, int64_t row_bytes);
MpiStart Barrier();

}  // namespace comm

#endif  // COMM_MPI_MPI_MOVES_H_
