// A decorator that tells when each collective begins and ends.
#ifndef COMM_TRACING_H_
#define COMM_TRACING_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "comm/communicator.h"
#include "kernels/queue.h"

namespace comm {

// Called on the communicator's thread.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  // `name`: "reduce_scatter", "all_gather", "all_reduce", "broadcast", "all_to_all_rows". `bytes`:
  // of the larger of input and output. The answer names the collective in Ended.
  virtual int64_t Began(absl::string_view name, absl::string_view label, int64_t bytes,
                        kernels::Queue& queue) = 0;
  // The call has returned: until here it may have held the queue up.
  virtual void Launched(int64_t /*collective*/, kernels::Queue& /*queue*/) {}
  // `queue` is about to wait for it.
  virtual void Waiting(int64_t /*collective*/, kernels::Queue& /*queue*/) {}
  // The future was waited for, by `queue`.
  virtual void Ended(int64_t collective, kernels::Queue& queue) = 0;
};

// `inner` and `listener` outlive the answer and its futures. Barriers are not told.
std::unique_ptr<Communicator> MakeTracing(Communicator& inner, CollectiveListener& listener);

}  // namespace comm

#endif  // COMM_TRACING_H_
