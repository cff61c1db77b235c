// As much of CUDA's runtime and of NCCL as nccl_link.cc uses, in host memory, for ranks that are
// threads: so that how faults end can be tested, and raced, without GPUs.
//
// A program that links this has these cuda* functions instead of CUDA's own.
#ifndef COMM_NCCL_FAKE_GPU_H_
#define COMM_NCCL_FAKE_GPU_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "comm/nccl/nccl_api.h"

namespace comm {

// A stream in order: events, waits for events, and collectives, which end when all ranks of a
// communicator have enqueued as many, or when it is aborted. Sends and receives of a group move
// their bytes, and end when each has met its other side; one that meets another size is a CHECK.
class FakeStream {
 public:
  FakeStream();
  ~FakeStream();
  cudaStream_t get() const { return stream_; }
  // What is enqueued from now on does not run before Unblock(), and what was, has run.
  void Block();
  void Unblock();

 private:
  cudaStream_t stream_;
};

// NCCL's functions. Communicators made with one id belong together.
const NcclApi& FakeNccl();

// How NCCL behaves for the communicators that this thread makes from now on.
struct FakeFaults {
  bool never_connects = false;
  // From the collective of that number on, what ncclCommGetAsyncError says; -1: never.
  int fails_at = -1;
};
void SetFakeFaults(const FakeFaults& faults);
// Communicators that were made, and neither destroyed nor aborted.
int FakeCommsAlive();

}  // namespace comm

#endif  // COMM_NCCL_FAKE_GPU_H_
