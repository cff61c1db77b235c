// Backend, which owns a device's memory and op implementations, and Queue, on which ops run
// in order: the CPU's executor, or a CUDA stream.
//
// An op is declared once, under kernels/ops/, as a free function that checks shapes and
// enqueues. Which implementation runs follows from the queue, so one program can hold both
// backends and compare them. Ops allocate nothing and wait for nothing.
#ifndef KERNELS_QUEUE_H_
#define KERNELS_QUEUE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/tensor.h"

namespace kernels {

class AttentionOps;
class ElementwiseOps;
class EmbeddingOps;
class HeadOps;
class MatMulOps;
class NormOps;
class OptimizerOps;
class QkvOps;

// One backend's implementation of each family of ops. The objects outlive the queue.
struct OpTable {
  const AttentionOps* attention = nullptr;
  const ElementwiseOps* elementwise = nullptr;
  const EmbeddingOps* embedding = nullptr;
  const HeadOps* head = nullptr;
  const MatMulOps* matmul = nullptr;
  const NormOps* norm = nullptr;
  const OptimizerOps* optimizer = nullptr;
  const QkvOps* qkv = nullptr;
};

// An in-order executor. Used from one thread at a time.
class Queue {
 public:
  virtual ~Queue() = default;

  virtual const OpTable& ops() const = 0;
  virtual DeviceKind device() const = 0;
  // Returns when everything enqueued so far is done.
  virtual void Synchronize() = 0;
  // Copies between host memory and a tensor, in queue order. The host side of Upload may be
  // reused when the call returns; the host side of Download is valid after Synchronize().
  virtual void Upload(const void* host, Tensor tensor) = 0;
  virtual void Download(Tensor tensor, void* host) = 0;
};

// A device: where memory comes from. Allocation happens before step 0 only.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;
  virtual DeviceKind device() const = 0;
  // Memory aligned to 256 bytes, filled with zeros; null if there is not enough.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) = 0;
};

}  // namespace kernels

#endif  // KERNELS_QUEUE_H_
