// Collectives among the ranks of a run, each asynchronous and answered by a Future.
//
//   Future reduced = comm.ReduceScatter("group 3", grads, chunk, ReduceOp::kSum, queue);
//   ...                                           // other work
//   ABSL_RETURN_IF_ERROR(reduced.Wait(queue));    // the queue waits, not the host, on a GPU
//
// All ranks make the same calls in the same order. Tensors given to a call stay untouched by
// the caller until its Future was waited for.
#ifndef COMM_COMMUNICATOR_H_
#define COMM_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace comm {

enum class ReduceOp : uint8_t {
  kSum,
  kAvg,  // the sum divided by the number of ranks
};
inline const char* Name(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "avg"; }

// The end of one collective. Movable; waiting twice is an error of ours (CHECK), and so is
// dropping a future without waiting: the buffers would be reused too early.
class Future {
 public:
  // What a backend does to make `queue` wait; the Status is the collective's own.
  using WaitFunction = std::function<absl::Status(kernels::Queue& queue)>;

  Future() = default;
  explicit Future(WaitFunction wait) : wait_(std::move(wait)) {}
  Future(Future&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Future& operator=(Future&& other) noexcept;
  ~Future();

  bool valid() const { return wait_ != nullptr; }
  // After it, work enqueued on `queue` sees the result. Unavailable (a rank is gone),
  // DeadlineExceeded (timeout), Aborted (ranks called different things; both are named).
  absl::Status Wait(kernels::Queue& queue);

 private:
  WaitFunction wait_;
};

// One rank's end. Used from one thread at a time. `label` says what the data is, for error
// messages and traces. `queue` is where the inputs are being produced.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual absl::string_view backend() const = 0;

  // out = entry `rank` of the reduction of all ranks' `in`.  in  [size() * n], out  [n], same
  // dtype (f32 or bf16; bf16 is added in f32 and rounded once). out may be the rank's own part
  // of `in`, otherwise they do not overlap.
  virtual Future ReduceScatter(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                               ReduceOp op, kernels::Queue& queue) = 0;
  // out = all ranks' `in`, one after the other.  in  [n], out  [size() * n], any dtype. in may
  // be the rank's own part of `out`, otherwise they do not overlap.
  virtual Future AllGather(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                           kernels::Queue& queue) = 0;
  // x = the reduction of all ranks' x, the same bits everywhere.  f32 or bf16
  virtual Future AllReduce(absl::string_view label, kernels::Tensor x, ReduceOp op,
                           kernels::Queue& queue) = 0;
  // x = the root's x. Any dtype.
  virtual Future Broadcast(absl::string_view label, kernels::Tensor x, int root,
                           kernels::Queue& queue) = 0;
  // Each rank's own number of rows to each. send_counts[r] rows of `in` go to rank r, those for
  // rank 0 first; `out` gets receive_counts[r] rows from rank r, rank 0's first, so
  // receive_counts[r] is this rank's entry of rank r's send_counts. Counts are of any size, 0 too,
  // also for the rank itself.  in  [at least all that are sent, ...], out  [at least all that are
  // received, ...], of one dtype and one shape of rows; any dtype; they do not overlap. Rows of
  // `out` beyond stay.
  virtual Future AllToAllRows(absl::string_view label, kernels::Tensor in,
                              absl::Span<const int64_t> send_counts, kernels::Tensor out,
                              absl::Span<const int64_t> receive_counts, kernels::Queue& queue) = 0;
  // Returns when all ranks have called it.
  virtual absl::Status Barrier(absl::string_view label) = 0;
  // Tells the other ranks that this one gives up: their pending and later calls fail with
  // Unavailable and this reason, instead of waiting for the timeout.
  virtual void Abort(const absl::Status& reason) = 0;
};

// Of AllToAllRows.
int64_t SumOfCounts(absl::Span<const int64_t> counts);
// Bytes of a row of x [rows, ...].
int64_t RowBytes(const kernels::Tensor& x);
// CHECKs what can be seen on one of `size` ranks.
void CheckRows(absl::string_view label, int size, const kernels::Tensor& in,
               absl::Span<const int64_t> send_counts, const kernels::Tensor& out,
               absl::Span<const int64_t> receive_counts);

}  // namespace comm

#endif  // COMM_COMMUNICATOR_H_
