// One NCCL communicator, its stream, and the thread that watches it. See nccl.h.
#ifndef COMM_NCCL_NCCL_LINK_H_
#define COMM_NCCL_NCCL_LINK_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/flight_record.h"
#include "comm/nccl/nccl_api.h"
#include "comm/process_rank.h"
#include "comm/rendezvous.h"
#include "comm/watchdog.h"

namespace comm {

// A CUDA event.
class Event {
 public:
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  cudaEvent_t get() const { return event_; }
  bool Done() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// A collective on its way. `begin` and `end` lie on the communicator's stream.
struct Operation {
  std::string call;    // "all_reduce(loss, f32 x 1, sum)"
  int64_t number = 0;  // of this rank's collectives
  Event begin, end;
  // When its turn came: inputs there, and all before it done.
  std::optional<std::chrono::steady_clock::time_point> turn;
};

class NcclLink {
 public:
  static absl::StatusOr<std::unique_ptr<NcclLink>> Connect(const NcclApi& api,
                                                           const ProcessRank& where, int device,
                                                           absl::Duration timeout,
                                                           FailureListener on_failure);
  // Waits until all is done, or failed.
  ~NcclLink();

  const NcclApi& api() const { return api_; }
  int rank() const { return where_.rank; }
  int size() const { return where_.size; }

  // Enqueues a collective of `bytes` behind `after`'s work so far. The Status is failure()'s, or
  // the reason why it could not be enqueued, which ends the link.
  using Enqueue = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  absl::StatusOr<std::shared_ptr<Operation>> Launch(std::string call, int64_t bytes,
                                                    std::optional<cudaStream_t> after,
                                                    const Enqueue& enqueue);
  // Returns when it has ended.
  absl::Status WaitOnHost(const Operation& operation);
  // Why the link has ended, with the report of all ranks' progress; OK while it has not. Waits for
  // the report, which takes as long as progress_exchange.h says.
  absl::Status failure();
  void Abort(const absl::Status& reason);

 private:
  NcclLink(const NcclApi& api, const ProcessRank& where, int device, absl::Duration timeout,
           FailureListener on_failure);

  absl::Status Init();
  absl::Status CheckDevices();
  // Enqueues under the lock and waits until NCCL has taken it.
  absl::Status Submit(const std::string& call, const Enqueue& enqueue);
  void Watch();
  // The first thing that is wrong. Takes finished operations off the list.
  absl::Status Inspect();
  // Ends the link, unless it has ended: tells the others the reason, collects the report for so
  // long, sets failure_, and stops what runs. The lock is free meanwhile.
  void Fail(std::unique_lock<std::mutex>& lock, const absl::Status& status,
            const absl::Status& reason, absl::Duration patience);
  // failure_, once it is complete.
  absl::Status Settled(std::unique_lock<std::mutex>& lock);
  absl::Status NcclError(absl::string_view what, ncclResult_t result) const;

  const NcclApi& api_;
  const ProcessRank where_;
  const int device_;
  const std::chrono::nanoseconds timeout_;
  const FailureListener on_failure_;
  FlightRecord record_;
  std::unique_ptr<Rendezvous> rendezvous_;
  cudaStream_t stream_ = nullptr;
  Event inputs_;  // the caller's work before a collective

  // NCCL is called with the lock held only, but for ncclCommAbort: it comes after comm_ was
  // cleared, so that no other call can be under way. No call that may wait for the GPU is made
  // with the lock held, since the thread that ends such a wait needs it.
  std::mutex mutex_;
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;         // null once failed
  bool failed_ = false;               // failure_ is there, or will be
  std::atomic<bool> aborted_{false};  // what runs may have ended without its data
  absl::Status failure_;
  std::deque<std::shared_ptr<Operation>> pending_;
  bool stop_ = false;
  std::thread watcher_;
};

}  // namespace comm

#endif  // COMM_NCCL_NCCL_LINK_H_
