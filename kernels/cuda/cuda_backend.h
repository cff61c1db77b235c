// The CUDA backend: one device of this process, and queues on streams of it.
#ifndef KERNELS_CUDA_CUDA_BACKEND_H_
#define KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/queue.h"

namespace kernels {

struct CudaQueueOptions {
  // See CudaQueue::deterministic().
  bool deterministic = false;
};

// A card as the driver knows it: "NVIDIA H200", compute capability 9.0, 139.8 GiB.
struct CudaCard {
  std::string name;
  int major = 0, minor = 0;
  int64_t memory_bytes = 0;
};

// The card and what is used to run on it, for logs.
struct CudaDeviceInfo : CudaCard {
  int driver_version = 0;        // 13000 is CUDA 13.0
  int runtime_version = 0;       // likewise
  int64_t cublaslt_version = 0;  // 130100 is 13.1.0
};

// The backend of a device, made at the first call and never destroyed. Safe from any thread.
// Errors say what is missing: no driver, a driver too old for the runtime, no GPU, no such
// device, or a compute capability for which no kernel was built (and the flag that builds it).
absl::StatusOr<Backend*> CudaBackend(int device = 0);
absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int device = 0);
// The card alone: needs neither cuBLASLt nor kernels for it.
absl::StatusOr<CudaCard> DescribeCudaCard(int device = 0);
// Devices that this process sees; 0 without a driver.
int CudaDeviceCount();

// A queue on a new stream. NotFound if cuBLASLt is missing. Objects are used from one thread at a
// time, and from any.
absl::StatusOr<std::unique_ptr<Queue>> MakeCudaQueue(int device, const CudaQueueOptions& options);

}  // namespace kernels

#endif  // KERNELS_CUDA_CUDA_BACKEND_H_
