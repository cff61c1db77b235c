// Pinned host memory between the program and the device.
#ifndef KERNELS_CUDA_STAGING_H_
#define KERNELS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/queue.h"

namespace kernels {

// A ring through which uploads go, so that the source may be reused when Upload returns and the
// copy itself is asynchronous. Waits only when it is full of copies that have not run yet.
class UploadRing {
 public:
  UploadRing();
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  void Upload(const void* host, void* device, int64_t bytes, cudaStream_t stream);

 private:
  struct Piece {
    int64_t begin, end;  // bytes of the ring
    cudaEvent_t copied;
  };
  // The start of `bytes` bytes that no pending copy reads.
  int64_t Reserve(int64_t bytes);

  char* memory_ = nullptr;
  int64_t next_ = 0;
  std::deque<Piece> pending_;  // in stream order
  std::vector<cudaEvent_t> events_;
};

// Pinned buffers for small downloads, used again and again.
class ReadbackPool : public std::enable_shared_from_this<ReadbackPool> {
 public:
  ~ReadbackPool();
  std::unique_ptr<Readback> Start(const Tensor& tensor, cudaStream_t stream);

 private:
  class Pinned;
  struct Buffer {
    void* memory = nullptr;
    int64_t bytes = 0;
    cudaEvent_t copied = nullptr;
  };
  std::vector<Buffer> free_;
};

}  // namespace kernels

#endif  // KERNELS_CUDA_STAGING_H_
