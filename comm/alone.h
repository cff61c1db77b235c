// Collectives of the only rank: copies on the caller's queue, of any backend.
#ifndef COMM_ALONE_H_
#define COMM_ALONE_H_

#include <memory>

#include "comm/communicator.h"

namespace comm {

// Rank 0 of 1. `backend` is what backend() says. A call copies `in` to `out` on the queue unless
// they are the same memory; it waits for nothing, and its Future is ready at once. Host tensors
// given with the queue of a GPU are copied by the host. After Abort() all fail with its reason.
std::unique_ptr<Communicator> MakeAlone(absl::string_view backend);

}  // namespace comm

#endif  // COMM_ALONE_H_
