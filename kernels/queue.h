// Backend, which owns a device's memory and op implementations, and Queue, on which ops run
// in order: the CPU's executor, or a CUDA stream.
//
// An op is declared once, under kernels/ops/, as a free function that checks shapes, tells who
// traces, and enqueues. Which implementation runs follows from the queue, so one program can hold
// both backends and compare them. Ops allocate nothing and wait for nothing.
#ifndef KERNELS_QUEUE_H_
#define KERNELS_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/tensor.h"

namespace kernels {

class AttentionOps;
class ElementwiseOps;
class EmbeddingOps;
class EmbeddingWorkspace;
class GatedOps;
class HeadOps;
class HeadWorkspace;
class MatMulOps;
class NormOps;
class OpListener;
class OptimizerOps;
class QkvOps;
class WeightOps;

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
  const GatedOps* gated = nullptr;
  const WeightOps* weight = nullptr;
  // The same objects, or those of a queue that plans memory and runs no op.
  const EmbeddingWorkspace* embedding_workspace = nullptr;
  const HeadWorkspace* head_workspace = nullptr;
};

// Ops recorded once, with their tensors, to be enqueued again and again: a CUDA graph.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues all of it on the queue that recorded it, which outlives the recording.
  virtual void Replay() = 0;
};

// A copy from the device that is under way.
class Readback {
 public:
  virtual ~Readback() = default;
  // Waits for the copy, and for nothing enqueued after it. The bytes live as long as this object.
  virtual const void* Wait() = 0;
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
  // Copies a small tensor (losses, flags) to the host without making anybody wait.
  virtual std::unique_ptr<Readback> StartDownload(Tensor tensor) = 0;

  // Records what `enqueue` enqueues, without running it. `enqueue` has run once before on this
  // queue, so that all its kernels are loaded and algorithms chosen, and only calls ops.
  virtual std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) = 0;

  // Keeps for the next start what this one has found out about the device: which algorithms are
  // fastest. Called once the first steps are over. Unavailable: the file cannot be written.
  virtual absl::Status SaveTuning() { return absl::OkStatus(); }

  // The listener is told of each op on this queue (kernels/ops/trace_scope.h) until another one, or
  // null, takes its place, and outlives its stay.
  OpListener* listener() const { return listener_; }
  void SetListener(OpListener* listener) { listener_ = listener; }
  // Enqueues a time stamp, taken when everything enqueued before it is done, and returns its
  // index: 0 for the first since the queue was made or TakeTimes() was called. Not to be recorded.
  virtual int64_t MarkTime() = 0;
  // Waits for all marks; their times in seconds since the first mark, by index. Forgets them.
  virtual std::vector<double> TakeTimes() = 0;

 private:
  OpListener* listener_ = nullptr;
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
