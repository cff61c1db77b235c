// The CUDA side of a Queue: a stream, scratch memory for ops, and the errors of the runtime.
#ifndef KERNELS_CUDA_CUDA_QUEUE_H_
#define KERNELS_CUDA_CUDA_QUEUE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/queue.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

// For calls that fail only by a bug of ours or a lost device. An illegal access shows up at the
// next call, so the message names the place that noticed it, not the one that did it.
#define CUDA_CHECK(call)                                                                          \
  do {                                                                                            \
    const cudaError_t cuda_check_error = (call);                                                  \
    CHECK(cuda_check_error == cudaSuccess) << #call << ": " << cudaGetErrorName(cuda_check_error) \
                                           << ": " << cudaGetErrorString(cuda_check_error);       \
  } while (false)

class CudaQueue : public Queue {
 public:
  DeviceKind device() const override { return DeviceKind::kCuda; }

  virtual cudaStream_t stream() const = 0;
  // The same bits whatever number of slots a pass has, and in every run.
  virtual bool deterministic() const = 0;
  // Multiprocessors of the device.
  virtual int sm_count() const = 0;

  // Device memory for what one op passes from kernel to kernel. The next op on this queue uses it
  // again, so nothing in it outlives the op. 256-byte aligned; CHECKs bytes <= kScratchBytes.
  virtual void* Scratch(int64_t bytes) = 0;
  static constexpr int64_t kScratchBytes = int64_t{64} << 20;
};

inline CudaQueue& Cuda(Queue& queue) {
  CHECK(queue.device() == DeviceKind::kCuda) << "a CUDA op on a CPU queue";
  return static_cast<CudaQueue&>(queue);
}

// After a launch: reports a bad configuration at once.
inline void CheckLaunch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  CHECK(error == cudaSuccess) << kernel << ": " << cudaGetErrorName(error) << ": "
                              << cudaGetErrorString(error);
}

}  // namespace kernels

#endif  // KERNELS_CUDA_CUDA_QUEUE_H_
